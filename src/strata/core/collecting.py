"""Python's search for cycles of objects, and when to leave it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Hundreds of thousands of small objects are made that all stay: looking through them for cycles, over and over,
    takes several times as long as making them; so does looking through them once more for everything that follows."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()
            gc.enable()
