"""The order in which workers get the files of tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from support.longest_first import LONGEST, longest_first

ROOT = Path(__file__).parents[2]


def test_every_file_that_is_to_begin_early_is_there_once() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
    assert len({*LONGEST}) == len(LONGEST)


def test_the_longest_files_come_first_then_those_of_most_tests_and_in_a_file_nothing_moves() -> None:
    one, long, many = "tests/a/test_one.py", LONGEST[1], "tests/z/test_many.py"
    given = [f"{one}::t", f"{many}::b", f"{many}::a", f"{long}::b", f"{long}::a", f"{LONGEST[0]}::t"]
    items: list[pytest.Item] = [SimpleNamespace(nodeid=nodeid) for nodeid in given]  # type: ignore[misc]
    assert [item.nodeid for item in longest_first(items)] == [
        f"{LONGEST[0]}::t",
        f"{long}::b",
        f"{long}::a",
        f"{many}::b",
        f"{many}::a",
        f"{one}::t",
    ]


def test_workers_get_the_files_in_this_order() -> None:
    """xdist would put them in its own."""
    shared_out = [line for line in (ROOT / "Makefile").read_text().splitlines() if "--dist loadfile" in line]
    assert shared_out
    assert all("--no-loadscope-reorder" in line for line in shared_out)
