"""A folder goes with everything in it, and what is mounted there stays whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata.cli.up import background
from strata.core.host.removal import mounts_below, remove_tree, unmount_below


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file in it, outside of what is removed."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_text("kept")
    yield folder
    unmount_below(tmp_path)


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def build_that_was_killed(work: Path, precious: Path) -> None:
    """Leave what an interrupted build may: mounts, and mounts on them."""
    root = work / "a build" / "root"
    for name in ("proc", "dev", "etc"):
        (root / name).mkdir(parents=True)
    (root / "etc" / "motd").write_text("hello")
    mount("-t", "proc", "proc", root / "proc")
    mount("--bind", precious, root / "dev")
    mount("-t", "tmpfs", "tmpfs", root / "dev")


def test_what_is_mounted_below_is_unmounted_and_not_emptied(tmp_path: Path, precious: Path) -> None:
    work = tmp_path / "work"
    build_that_was_killed(work, precious)
    assert [point.name for point in mounts_below(work)] == ["proc", "dev", "dev"]
    remove_tree(work)
    assert not work.exists()
    assert mounts_below(tmp_path) == []
    assert (precious / "file").read_text() == "kept"


def test_a_folder_that_is_a_mount_itself_is_not_emptied(tmp_path: Path, precious: Path) -> None:
    place = tmp_path / "images"
    place.mkdir()
    mount("--bind", precious, place)
    remove_tree(place)
    assert not place.exists()
    assert (precious / "file").exists()


def test_a_link_to_a_mount_is_a_link(tmp_path: Path, precious: Path) -> None:
    place, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    mount("--bind", precious, elsewhere)
    (place / "link").symlink_to(elsewhere)
    remove_tree(place)
    assert mounts_below(elsewhere) == [elsewhere]


def test_down_removes_a_state_directory_in_which_a_build_was_killed(tmp_path: Path, precious: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / background.MARK).write_text(f'["{state}"]\n')
    build_that_was_killed(state / "images" / "work", precious)
    assert background.remove(state)
    assert not state.exists()
    assert mounts_below(tmp_path) == []
    assert (precious / "file").read_text() == "kept"
