"""Fixtures of the benchmarks' tests."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory with a short name: unix sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="sb") as found:
        yield Path(found)
