"""The two times."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """``now`` for intervals and deadlines, ``wall`` for people."""

    def __init__(self, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.now = now
        self.wall = wall

    def to_wall(self, moment: float) -> float:
        """A moment on the ``now`` clock as people write it."""
        return self.wall() - (self.now() - moment)
