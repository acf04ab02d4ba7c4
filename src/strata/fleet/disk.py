"""Room on a disk: what is free there, what has to stay free for the store and the logs, and how that is said."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import Unavailable
from strata.fleet.alarm import Alarm, AlarmSeverity, AlarmSink
from strata.fleet.trouble import TroubleWatch

PART = 0.05
"""Of a disk, that stays free..."""
LEAST, MOST = 32 << 20, 1 << 30
"""...but not less, and not more bytes: what the store and the logs need does not grow with the disk."""
EVERY = 5.0
"""Seconds between two looks of ``DiskWatch``."""
_FILES = 1000


class Space(NamedTuple):
    """How a file system is filled, in bytes."""

    total: int
    free: int
    reserve: int
    """What has to stay free."""
    no_files: bool
    """It takes (almost) no more files, whatever is free."""

    @property
    def is_full(self) -> bool:
        """Nothing but what has to stay free is left."""
        return self.no_files or self.free < self.reserve

    def __str__(self) -> str:
        if self.no_files:
            return f"no more files can be made on it ({size(self.free)} of {size(self.total)} are free)"
        return f"{size(self.free)} of {size(self.total)} are free, and {size(self.reserve)} have to stay free"


def space(folder: Path) -> Space:
    """Of the file system that ``folder`` is on."""
    disk = os.statvfs(folder)
    total = disk.f_blocks * disk.f_frsize
    reserve = min(MOST, max(LEAST, int(total * PART)))
    return Space(total, disk.f_bavail * disk.f_frsize, reserve, bool(disk.f_files) and disk.f_favail < _FILES)


def require_room(folder: Path, needed: int, what: str, hint: str) -> None:
    """Before ``needed`` bytes more are written below ``folder``: ``Unavailable`` where there is no room for them."""
    found = space(folder)
    if found.no_files or found.free < needed + found.reserve:
        raise Unavailable(f"there is no room for {size(needed)} on the disk: {found}", where=what, hint=hint)


def size(count: int) -> str:
    """``12 MiB``, ``1.4 GiB``."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{count} bytes"


_ROOM_AGAIN = "the disk has room again"


class DiskWatch(TroubleWatch):
    """Looks at the disk of ``folder``."""

    def __init__(self, folder: Path, tell: AlarmSink = lambda _: None, *, owner: str = "") -> None:
        """``tell``: hears of it when the disk is full and when it has room again; ``owner``: whose disk it is."""
        super().__init__(EVERY, _ROOM_AGAIN)
        self._folder = folder
        self._tell = tell
        self._owner = owner
        self._looked = False

    async def look(self) -> bool:
        """Also tells at the first look: it may have been full when we ended."""
        changed = await super().look()
        if changed or not self._looked:
            self._looked = True
            message = f"controller {self._owner}: {self.trouble or _ROOM_AGAIN}"
            severity: AlarmSeverity = "critical" if self.trouble else "ok"
            self._tell(Alarm(kind="disk-full", message=message, about=self._owner, severity=severity))
        return changed

    async def find(self) -> str:
        """Why it should be looked after; empty: there is room."""
        try:
            found = await asyncio.to_thread(space, self._folder)
        except OSError as error:
            return f"the disk of {self._folder} cannot be looked at: {error.strerror}"
        return f"the disk of {self._folder} is full: {found}" if found.is_full else ""
