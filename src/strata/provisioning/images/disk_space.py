"""Room on the disk for what is unpacked: a budget, and what is free, of which a part is left to everybody else."""

from __future__ import annotations

from pathlib import Path

from strata.core.errors import BadRequest
from strata.fleet.disk import require_room

HINT = "make room: strata image gc"
_LOOK_EVERY = 16 << 20
MOST_RATIO = 100
"""Times its own size that compressed data may grow to. Systems grow two to four times, logs twenty times."""
ALWAYS_TAKEN = 256 << 20
"""Bytes that it may grow to whatever its size: zeros compress a thousand times, and a few are in every image."""


class Room:
    """What may still be written below ``folder``. ``what`` is written, and named in errors."""

    def __init__(self, folder: Path, most: int, what: str) -> None:
        self._folder = folder
        self._most = most
        self._what = what
        self._taken = 0
        self._looked_at = -_LOOK_EVERY

    def take(self, size: int) -> None:
        """Before so many bytes are written. ``BadRequest``: over the budget; ``Unavailable``: the disk is full."""
        self._taken += size
        if self._taken > self._most:
            raise BadRequest(f"more than {self._most >> 20} MiB", where=self._what, hint="it is not taken in")
        if self._taken - self._looked_at >= _LOOK_EVERY:
            self._looked_at = self._taken
            require_room(self._folder, size, self._what, HINT)


def may_grow_to(packed: int) -> int:
    """Bytes that so many compressed ones may unpack to."""
    return max(ALWAYS_TAKEN, packed * MOST_RATIO)
