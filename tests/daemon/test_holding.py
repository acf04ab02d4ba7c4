"""How many requests of agents a machine holds open."""

from __future__ import annotations

import os
import resource

import pytest

from strata.provisioning.agents.capacity import LEAST, MOST, connections, holdable


@pytest.mark.parametrize(
    ("files", "gigabytes", "held"),
    [(20_000, 64, 5_000), (1_048_576, 8, 13_107), (1_048_576, 512, MOST), (1024, 64, LEAST)],
)
def test_it_is_what_files_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, files: int, gigabytes: int, held: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gigabytes * 2**30 // 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert holdable() == held


def test_nginx_has_room_for_them_and_for_others() -> None:
    assert connections(0) >= 8192
    assert connections(10_000) - connections(0) == 30_000
