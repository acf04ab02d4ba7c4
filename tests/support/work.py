"""How much a piece of work does, the same on every machine: calls of functions, and bytes of memory, not seconds."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from collections.abc import Iterator
from types import FrameType


class Work:
    """What was done so far, in this thread."""

    calls = 0
    """Functions that were called, Python's own included."""
    peak = 0
    """The most memory that was held at a time, in bytes; known at the end."""


@contextlib.contextmanager
def counted() -> Iterator[Work]:
    """Count the calls of what is done in this context."""
    work = Work()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            work.calls += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield work
    finally:
        sys.setprofile(before)


@contextlib.contextmanager
def weighed() -> Iterator[Work]:
    """Weigh the memory of what is done in this context."""
    work = Work()
    tracemalloc.start()
    try:
        yield work
    finally:
        work.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
