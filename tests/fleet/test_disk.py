"""What stays free on a disk, and what is said where there is no room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata.core.errors import Unavailable
from strata.fleet.alarm import Alarm
from strata.fleet.disk import DiskWatch, require_room, size, space

MIB, GIB = 1 << 20, 1 << 30


def a_disk(monkeypatch: pytest.MonkeyPatch, total: int, free: int, *, files: int = 10**6) -> None:
    blocks = (4096, 4096, total // 4096, free // 4096, free // 4096, 10**7, files, files, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda folder: os.statvfs_result(blocks))


@pytest.mark.parametrize(
    ("total", "used", "fits"),
    [
        (GIB, 0.12, 700 * MIB),  # a small disk is not full because of what a large one keeps free
        (8 * GIB, 0.12, 6 * GIB),
        (100 * GIB, 0.5, 48 * GIB),
        (1000 * GIB, 0.99, 8 * GIB),  # a large one keeps free what is needed, and not a part of all that it has
    ],
)
def test_what_stays_free_suits_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, total: int, used: float, fits: int
) -> None:
    free = int(total * (1 - used))
    a_disk(monkeypatch, total, free)
    require_room(tmp_path, fits, "image", "gc")
    with pytest.raises(Unavailable):
        require_room(tmp_path, free, "image", "gc")


def test_what_is_needed_and_what_is_free_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_disk(monkeypatch, 4 * GIB, 600 * MIB)
    with pytest.raises(Unavailable) as refused:
        require_room(tmp_path, 500 * MIB, "upload", "make room: strata image gc")
    said = "there is no room for 500 MiB on the disk: 600 MiB of 4 GiB are free, and 204.8 MiB have to stay free"
    assert refused.value.detail == said
    assert refused.value.hint == "make room: strata image gc"


def test_a_disk_that_takes_no_more_files_has_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_disk(monkeypatch, 4 * GIB, 3 * GIB, files=10)
    with pytest.raises(Unavailable, match="no more files can be made"):
        require_room(tmp_path, 1, "upload", "")


async def test_a_full_disk_is_trouble_until_there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path)
    await watch.look()
    assert watch.trouble == ""
    a_disk(monkeypatch, 4 * GIB, 3 * MIB)
    await watch.look()
    assert watch.trouble == (
        f"the disk of {tmp_path} is full: 3 MiB of 4 GiB are free, and 204.8 MiB have to stay free"
    )
    a_disk(monkeypatch, 4 * GIB, 3 * GIB)
    await watch.look()
    assert watch.trouble == ""


async def test_a_full_disk_has_an_alarm_until_there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[Alarm] = []
    watch = DiskWatch(tmp_path, told.append, owner="c1")
    for free in (3 * GIB, 3 * MIB, 2 * MIB, 3 * GIB, 3 * GIB):
        a_disk(monkeypatch, 4 * GIB, free)
        await watch.look()
    # The first: it may have been full when the controller ended, and that alert is still open.
    assert [alarm.severity for alarm in told] == ["ok", "critical", "ok"]
    assert {(alarm.kind, alarm.about) for alarm in told} == {("disk-full", "c1")}
    assert told[1].message.startswith(f"controller c1: the disk of {tmp_path} is full: 3 MiB of 4 GiB are free")


async def test_a_disk_that_is_gone_is_trouble(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path / "nowhere")
    await watch.look()
    assert "cannot be looked at: No such file" in watch.trouble


def test_sizes_are_words_that_people_say() -> None:
    assert [size(n) for n in (12, 2048, 3 * MIB, int(1.4 * GIB), 2048 * GIB)] == [
        "12 bytes", "2 KiB", "3 MiB", "1.4 GiB", "2 TiB",
    ]  # fmt: skip


def test_the_disk_of_a_folder_is_looked_at(tmp_path: Path) -> None:
    found = space(tmp_path)
    assert 0 < found.free <= found.total
