"""Keeps accelerators that a job was not given from its processes, by a device cgroup: the kernel refuses to open them.

For schedulers that do not do it themselves; Slurm does (``ConstrainDevices``), and so does this machine as a target of
jobs, by the same program. Needs root. A group of its own is made
for the process below the one that it is in: in the hierarchy of cgroup v2 with a small program in the kernel, which
says no to the devices that are named and leaves all others as they were; in a ``devices`` hierarchy of v1 by its list.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import NotFound, Unavailable
from strata.jobs.accelerators.assignment import Assigned
from strata.jobs.accelerators.records import Found
from strata.jobs.local.supervisor import attach_devices

_READ_WORD, _JUMP_UNLESS, _SET, _END = 0x61, 0x55, 0xB7, 0x95
_GROUPS = Path("/sys/fs/cgroup")
_PREFIX = "strata-accelerators-"


class Device(NamedTuple):
    """A character device, as the kernel counts them."""

    major: int
    minor: int


def confine(pid: int, found: Found, assigned: Assigned) -> Path:
    """Let a process, and all that it starts from now on, open no accelerators but those that are assigned; the group
    that it is in now. ``Unavailable``: there are no device cgroups here, or we may not make one."""
    denied = others(found, assigned)
    mine = _groups_of(pid)
    try:
        if "devices" in mine:
            return _by_list(_GROUPS / "devices" / mine["devices"].lstrip("/"), pid, denied)
        top = _GROUPS / "unified" if (_GROUPS / "unified").is_dir() else _GROUPS
        return _by_program(top / mine.get("", "/").lstrip("/"), pid, denied)
    except OSError as error:
        raise Unavailable(
            f"no device cgroup for process {pid}: {error.strerror or error}",
            where=str(error.filename or _GROUPS),
            hint="it takes root, and cgroups that can be written to",
        ) from None


def others(found: Found, assigned: Assigned) -> list[Device]:
    """The devices of accelerators that are not assigned."""
    kept = set(assigned.devices(found))
    cards = [card for card in found.accelerators if card not in assigned.accelerators]
    return _numbers(path for card in cards for path in card.devices if path not in kept)


def _groups_of(pid: int) -> dict[str, str]:
    """Hierarchy → the group of the process in it; that of v2 has no name."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise NotFound("there is no such process", where=f"process {pid}") from None
    found: dict[str, str] = {}
    for line in lines:
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(","), path)
    return found


def _numbers(paths: Iterable[str]) -> list[Device]:
    found = [Path(path).stat().st_rdev for path in paths]
    return sorted({Device(os.major(number), os.minor(number)) for number in found})


def _by_list(parent: Path, pid: int, denied: Iterable[Device]) -> Path:
    group = _made(parent, pid)
    for device in denied:
        (group / "devices.deny").write_text(f"c {device.major}:{device.minor} rwm")
    (group / "cgroup.procs").write_text(str(pid))
    return group


def _by_program(parent: Path, pid: int, denied: Iterable[Device]) -> Path:
    group = _made(parent, pid)
    attach_devices(str(group), program(denied))
    (group / "cgroup.procs").write_text(str(pid))
    return group


def program(denied: Iterable[Device]) -> bytes:
    """What the kernel runs for each opening of a device: 0 for those that are denied, 1 for all others."""
    words = [_word(_READ_WORD, to=2, of=1, at=4), _word(_READ_WORD, to=3, of=1, at=8)]
    for device in denied:
        words += [
            _word(_JUMP_UNLESS, to=2, at=3, value=device.major),
            _word(_JUMP_UNLESS, to=3, at=2, value=device.minor),
            _word(_SET, to=0, value=0),
            _word(_END),
        ]
    return b"".join([*words, _word(_SET, to=0, value=1), _word(_END)])


def _word(code: int, *, to: int = 0, of: int = 0, at: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, to | of << 4, at, value)


def _made(parent: Path, pid: int) -> Path:
    """A group for the process; those of processes that have ended go."""
    for old in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody is in it
            old.rmdir()
    group = parent / f"{_PREFIX}{pid}"
    group.mkdir(exist_ok=True)
    return group
