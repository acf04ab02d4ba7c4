"""Keeps accelerators that a job was not given from its processes, by a device cgroup: the kernel refuses to open them.

For schedulers that do not do it themselves; Slurm does (``ConstrainDevices``). Needs root. A group of its own is made
for the process below the one that it is in: in the hierarchy of cgroup v2 with a small program in the kernel, which
says no to the devices that are named and leaves all others as they were; in a ``devices`` hierarchy of v1 by its list.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import NotFound, Unavailable
from strata.jobs.accelerators.assignment import Assigned
from strata.jobs.accelerators.records import Found

_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_LOAD, _ATTACH = 5, 8
_DEVICE_PROGRAM, _DEVICE_GROUP, _BESIDE_OTHERS = 15, 6, 2
_READ_WORD, _JUMP_UNLESS, _SET, _END = 0x61, 0x55, 0xB7, 0x95
_GROUPS = Path("/sys/fs/cgroup")
_PREFIX = "strata-accelerators-"


class Device(NamedTuple):
    """A character device, as the kernel counts them."""

    major: int
    minor: int


def confine(pid: int, found: Found, assigned: Assigned, *, groups: Path = _GROUPS) -> Path:
    """Let a process, and all that it starts from now on, open no accelerators but those that are assigned; the group
    that it is in now. ``Unavailable``: there are no device cgroups here, or we may not make one."""
    others = [card for card in found.accelerators if card not in assigned.accelerators]
    kept = set(assigned.devices(found))
    denied = _numbers(path for card in others for path in card.devices if path not in kept)
    mine = _groups_of(pid)
    try:
        if "devices" in mine:
            return _by_list(groups / "devices" / mine["devices"].lstrip("/"), pid, denied)
        top = groups / "unified" if (groups / "unified").is_dir() else groups
        return _by_program(top / mine.get("", "/").lstrip("/"), pid, denied)
    except OSError as error:
        raise Unavailable(
            f"no device cgroup for process {pid}: {error.strerror or error}",
            where=str(error.filename or groups),
            hint="it takes root, and cgroups that can be written to",
        ) from None


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
    words = program(denied)
    code, licence = ctypes.create_string_buffer(words, len(words)), ctypes.create_string_buffer(b"Apache-2.0")
    places = (ctypes.addressof(code), ctypes.addressof(licence))
    loaded = _bpf(_LOAD, struct.pack("=IIQQ", _DEVICE_PROGRAM, len(words) // 8, *places).ljust(72, b"\0"))
    opened = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _bpf(_ATTACH, struct.pack("=IIII", opened, loaded, _DEVICE_GROUP, _BESIDE_OTHERS).ljust(32, b"\0"))
    finally:
        os.close(opened)
        os.close(loaded)
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


def _bpf(what: int, told: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(None, f"not known how to on {platform.machine()}")
    block = ctypes.create_string_buffer(told, len(told))
    done = int(libc.syscall(number, what, block, len(told)))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _made(parent: Path, pid: int) -> Path:
    """A group for the process; those of processes that have ended go."""
    for old in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody is in it
            old.rmdir()
    group = parent / f"{_PREFIX}{pid}"
    group.mkdir(exist_ok=True)
    return group
