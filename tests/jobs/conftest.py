"""Fixtures of the job layer's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
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


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that other accounts may go through. pytest closes its own to them, whenever one starts."""
    directory = Path(tempfile.mkdtemp(prefix="jobs-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
