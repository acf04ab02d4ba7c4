"""Removes a folder with everything in it, and never anything of what is mounted below it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from pathlib import Path

from strata.core.errors import Unavailable

_MOUNTS = Path("/proc/self/mountinfo")
_DETACH, _NO_FOLLOW = 2, 8
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def remove_tree(path: Path) -> None:
    """Take away what is mounted at ``path`` or below it, then remove the folder. ``Unavailable`` where a mount cannot
    be taken away: then nothing is removed."""
    unmount_below(path)
    shutil.rmtree(path, onerror=_ignore_gone)


def unmount_below(path: Path) -> None:
    """Take away every mount at ``path`` and below it; one that is busy goes when its last user does."""
    libc = ctypes.CDLL(None, use_errno=True)
    while points := mounts_below(path):
        # What was mounted last may cover the others.
        if libc.umount2(os.fsencode(points[-1]), _DETACH | _NO_FOLLOW):
            why = os.strerror(ctypes.get_errno())
            raise Unavailable(
                f"something is mounted below it, and cannot be unmounted: {why}",
                where=str(points[-1]),
                hint=f"umount {points[-1]}",
            )


def mounts_below(path: Path) -> list[Path]:
    """Where something is mounted at ``path`` and below it, in the order of mounting."""
    root = path.resolve()
    found = []
    for line in _MOUNTS.read_bytes().splitlines():
        name = _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4])
        point = Path(os.fsdecode(name))
        if point.is_relative_to(root):
            found.append(point)
    return found


def _ignore_gone(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    """For ``rmtree``: a process that is just ending may remove a file before we do."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
