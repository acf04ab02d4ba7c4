"""Fixtures of the whole-system tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import system_support


@pytest.fixture
def world() -> Iterator[system_support.World]:
    """Nothing runs yet; whatever the test starts is ended with it."""
    with system_support.world() as found:
        yield found
