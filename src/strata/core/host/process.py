"""A background process that can be found again and stopped, and never mistaken for another.

A pid alone is not enough: it is used again after its process is gone. A record also holds the time at which the process
started (in the kernel's ticks) and the machine's boot; signals go through a pidfd, so that they cannot miss.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

FIRST_FD = 10
"""What ``spawn`` hands over begins here."""

_PROC = Path("/proc")


class Process(NamedTuple):
    """One process of this boot of this machine."""

    pid: int
    started: int
    boot: str

    @property
    def alive(self) -> bool:
        """Whether it is this process that runs under the pid, and not a later one."""
        return find(self.pid) == self

    @property
    def cpu_seconds(self) -> float:
        """How long processors have worked for it; 0 once it is gone."""
        fields = _stat(self.pid) if self.alive else None
        return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def save(self, path: Path) -> None:
        """Write it down, whole or not at all."""
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(self._asdict()) + "\n", encoding="ascii")
        scratch.replace(path)


def load(path: Path) -> Process | None:
    """The process in a file that ``save`` wrote; None if there is none."""
    try:
        told = json.loads(path.read_text(encoding="ascii"))
        return Process(int(told["pid"]), int(told["started"]), str(told["boot"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find(pid: int) -> Process | None:
    """The running process with this pid; None if there is none, or only its remains (a zombie)."""
    fields = _stat(pid)
    # A process whose first thread has ended looks like remains, while others of its threads run and hold its files.
    if fields is None or (fields[0] in ("Z", "X") and int(fields[17]) <= 1):
        return None
    return Process(pid, int(fields[19]), _boot())


def session_of(leader: int) -> list[Process]:
    """Every process in the session that ``leader`` leads, itself included."""
    members = (pid for pid in _pids() if (fields := _stat(pid)) is not None and int(fields[3]) == leader)
    return [process for pid in members if (process := find(pid)) is not None]


def spawn(arguments: list[str], environment: Mapping[str, str], log: Path, fds: Sequence[int] = ()) -> Process:
    """Start a program in a session of its own, reading nothing and writing to ``log``.

    It gets ``fds`` as its 10, 11...; they are not inherited by anything else that starts meanwhile.
    """
    log.touch(mode=0o600)
    pid = os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_APPEND, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_DUP2, fd, FIRST_FD + i) for i, fd in enumerate(fds)),
        ],
        setsid=True,
    )
    return find(pid) or Process(pid, 0, "")


def reap(process: Process) -> int | None:
    """The exit code of a child that has ended, else None. Not for processes of others."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None


def stop(process: Process, *, grace: float) -> bool:
    """End the process and whatever is left of its session; False if it was already gone.

    It is asked (SIGTERM), and after ``grace`` seconds made to (SIGKILL).
    """
    members = session_of(process.pid) if process.alive else []
    ended = _end(process, grace)
    for member in members:
        if member != process:
            _end(member, min(grace, 2.0))
    return ended


def _end(process: Process, grace: float) -> bool:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle is of whoever has the pid now. Only if that is ours may it be used.
        if not process.alive:
            return False
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            if _ended(handle, patience):
                reap(process)
                return True
        return True
    finally:
        os.close(handle)


def _ended(handle: int, patience: float) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    deadline = time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0:
        if poller.poll(left * 1000):
            return True
    return False


def with_argument(beginning: str) -> list[Process]:
    """Every process that has an argument which begins so."""
    found = []
    wanted = beginning.encode()
    for pid in _pids():
        with contextlib.suppress(OSError):
            arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if any(argument.startswith(wanted) for argument in arguments) and (process := find(pid)) is not None:
                found.append(process)
    return found


def command(module: str, *arguments: str) -> list[str]:
    """A program of ours, whichever way this one was installed."""
    return [sys.executable, "-m", module, *arguments]


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second, a free name, may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


@cache
def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
