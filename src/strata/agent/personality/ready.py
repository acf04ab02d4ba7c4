"""Whether a member is ready, by what its personality declares, and whether what it runs from is still there."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from ..files import inside
from .member import Member

_NAMED = 5
_LISTEN = "0A"
"""TCP_LISTEN, as the kernel's tables write it."""


def is_ready(member: Member, pid: int, command: list[str]) -> bool:
    """Look once; `command` runs the member's own check inside it."""
    if member.ready_kind == "file":
        try:
            return inside(Path(f"/proc/{pid}/root"), member.ready_path).exists()
        except OSError:
            return False
    if member.ready_kind == "tcp":
        return listens(pid, member.ready_port)
    if member.ready_kind == "command":
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
    return True


def listens(pid: int, port: int) -> bool:
    """Whether anybody listens at a TCP port where process ``pid`` is. The kernel is asked: servers complain of whoever
    connects and says nothing."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        if any(
            state == _LISTEN and int(local.rpartition(":")[2], 16) == port
            for _, local, _, state, *_ in map(str.split, lines)
        ):
            return True
    return False


def top(image: Path) -> list[str]:
    """What an image has at its top, apart from empty places to mount something at."""
    with os.scandir(image) as entries:
        return sorted(entry.name for entry in entries if entry.is_symlink() or _holds_something(entry))


def _holds_something(entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir(follow_symlinks=False):
        return True
    with os.scandir(entry.path) as inside_it:
        return any(True for _ in inside_it)


def lost(member: Member, written: Path, had: list[str]) -> str:
    """What a member has removed of the image that it runs from; empty: nothing that matters.

    Looks only at `written`, which is in memory: an image that is fetched as it is read may keep one waiting. A service
    may remove what it does not need. Without its program, or most of what its image `had` at the top, it is not what
    its owners wanted, whatever it answers.
    """
    gone = [name for name in had if _removed(written / name)]
    if 2 * len(gone) > len(had):
        return f"its root was wiped: {', '.join('/' + name for name in gone[:_NAMED])} are gone"
    program = Path(member.argv[0])
    if program.is_absolute():
        way = written / program.relative_to("/")
        if any(_removed(place) for place in (way, *way.parents) if place.is_relative_to(written)):
            return f"{program} is gone from its root"
    return ""


def _removed(place: Path) -> bool:
    """Whether an overlay says there that what is below is gone: a character device of number 0."""
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def awaited(member: Member) -> str:
    """What did not come about, in words."""
    if member.ready_kind == "file":
        return f"there is no {member.ready_path}"
    if member.ready_kind == "tcp":
        return f"nobody listens at port {member.ready_port}"
    if member.ready_kind == "command":
        return f"{member.ready_argv[0]} does not succeed"
    return "it did not start"
