"""Files are shared out so that some are left for people."""

from __future__ import annotations

import pytest

from strata.fleet.files import LEAST, SHARES, share


@pytest.mark.parametrize("files", [256, 1024, 20_000, 1 << 20])
def test_however_many_files_there_are_an_eighth_is_left_for_people(files: int) -> None:
    assert sum(share(use, files=files) for use in SHARES) <= files * 7 // 8


def test_every_part_gets_some_files_and_no_more_than_it_wants() -> None:
    assert share("events", files=16) == LEAST
    assert share("consoles", files=1 << 20, most=500) == 500
