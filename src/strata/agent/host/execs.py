"""Commands that a person runs on the node: output bounded, time bounded, the whole process group ended."""

from __future__ import annotations

import base64
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable

from ..commands import Job
from ..errors import CommandFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_OUTPUT = 65536


def run_exec(job: Job, argv: list[str], end: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Run `argv`; `end` ends what a killed process group leaves behind (a process inside a container)."""
    timeout = float(job.command.get("timeout") or 60)
    wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    job.on_cancel = lambda: os.eventfd_write(wake, 1)
    if job.cancelled.is_set():
        job.on_cancel()
    given = _stdin(job)
    try:
        process = subprocess.Popen(
            argv, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        os.close(wake)
        raise CommandFailed(f"{argv[0][:100]!r} cannot be run: {error.strerror or error}") from None
    finally:
        if given != subprocess.DEVNULL:
            os.close(given)
    try:
        output, whole, stopped = _read(process, wake, time.monotonic() + timeout)
        if stopped:
            end()
            _kill_group(process)
        code = process.wait()
    finally:
        job.on_cancel = lambda: None
        os.close(wake)
        if process.stdout is not None:
            process.stdout.close()
    result = {
        "ok": code == 0 and not stopped,
        "exit": code if code >= 0 else 128 - code,
        "output": base64.b64encode(output).decode(),
        "truncated": not whole,
    }
    if stopped:
        result["error"] = "cancelled" if job.cancelled.is_set() else f"stopped after {timeout:g} s"
    elif code:
        result["error"] = f"exit status {result['exit']}"
    return result


def _stdin(job: Job) -> int:
    """A file that is nowhere but in memory, with what the command is given to read."""
    text = job.command.get("stdin")
    if not text:
        return subprocess.DEVNULL
    given = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(given, "wb", closefd=False) as file:
        file.write(base64.b64decode(text))
    os.lseek(given, 0, os.SEEK_SET)
    return given


def _read(process: subprocess.Popen[bytes], wake: int, deadline: float) -> tuple[bytes, bool, bool]:
    """Output up to the limit, whether that is all of it, and whether the process must be stopped."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    poll = select.poll()
    gone = os.pidfd_open(process.pid)
    for descriptor in (pipe, wake, gone):
        poll.register(descriptor, select.POLLIN)
    output, size = bytearray(), 0
    os.set_blocking(pipe, False)

    def read() -> bool:
        nonlocal size
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return False
        size += len(data)
        output.extend(data[: _MOST_OUTPUT - len(output)])
        return bool(data)

    try:
        while True:
            left = deadline - time.monotonic()
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, left) * 1000)}
            if gone in ready:  # a child left in the background may hold the pipe: it is not waited for
                for _ in range(64):
                    if not read():
                        break
                return bytes(output), size == len(output), False
            if wake in ready or left <= 0:
                return bytes(output), size == len(output), True
            if pipe in ready and not read():
                poll.unregister(pipe)
    finally:
        os.close(gone)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
