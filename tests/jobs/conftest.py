"""Fixtures of the job layer's tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that other accounts may go through. pytest closes its own to them, whenever one starts."""
    directory = Path(tempfile.mkdtemp(prefix="jobs-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
