"""Fixtures of the native runner's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import native


@pytest.fixture(scope="session")
def runner() -> Path:
    """The folder with the programs."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    return native.built()


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody can look into, and that is root's."""
    with native.open_folder() as made:
        yield made


@pytest.fixture
def users_folder(folder: Path) -> Path:
    """One that is the user's."""
    made = folder / "users"
    made.mkdir()
    native.give(made)
    return made


@pytest.fixture
def image(runner: Path, folder: Path) -> Path:
    """A small one."""
    return native.small_image(folder / "image")
