"""Running a foreign command safely: no shell, little environment, bounded time and output, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

import msgspec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_ERRORS = 2000
"""Bytes of standard error that are kept: the last ones."""

_READ = 65536
_KILLS = 20


class Finished(msgspec.Struct, frozen=True):
    """How a command ended by itself. ``status`` below 0: by that signal."""

    status: int
    output: bytes
    errors: str


async def run_command(
    command: Sequence[str], body: bytes, limit: float, most_output: int, env: Mapping[str, str]
) -> Finished | str:
    """Run ``command`` with ``body`` on its standard input; how it ended, or why nothing is known of that. It gets PATH,
    a plain locale and ``env``, and nothing of our own environment. At the end its process group is gone."""
    starting = asyncio.create_task(_start(command, body, env))
    try:
        process = await asyncio.shield(starting)
    except (OSError, ValueError) as error:
        return f"the command {command[0]} could not be started: {error}"
    except asyncio.CancelledError:
        # It may run already: cancelling the start would leave its group behind.
        with contextlib.suppress(OSError, ValueError):
            await _end(await starting)
        raise
    try:
        async with asyncio.timeout(limit):
            output, errors = await asyncio.gather(_read(process, most_output), _tail(process.stderr))
            if output is None:
                return f"the command said more than {most_output} bytes and was killed"
            status = await process.wait()
        return Finished(status, output, errors)
    except TimeoutError:
        return f"the command did not end within {limit:g} s and was killed"
    finally:
        # Also after a good end: a child that it left in the background would act without a fence.
        await _end(process)


async def _start(command: Sequence[str], body: bytes, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    # In memory and whole before the start: a command that does not read its input cannot hold us up.
    with os.fdopen(os.memfd_create("question"), "w+b", buffering=0) as question:
        question.write(body)
        question.seek(0)
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=question,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": PATH, "LANG": "C.UTF-8", **env},
            cwd="/",
            start_new_session=True,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the whole group and wait until it is gone."""
    _kill(process)
    # A child that left the group may still hold our pipes, and asyncio's wait would wait for it.
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    for descriptor in (1, 2):
        if pipe := transport.get_pipe_transport(descriptor):
            pipe.close()
    await process.wait()
    transport.close()
    for _ in range(_KILLS):  # a child that was being forked when the signal came may have missed it
        if not _kill(process):
            return
        await asyncio.sleep(0.005)


def _kill(process: asyncio.subprocess.Process) -> bool:
    """Whether there was somebody left. The number is the group's as long as it has a member."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _read(process: asyncio.subprocess.Process, most: int) -> bytes | None:
    """All of its output; None when it is more than ``most``, at which it is killed."""
    assert process.stdout is not None
    found = bytearray()
    while part := await process.stdout.read(_READ):
        found += part
        if len(found) > most:
            _kill(process)
            return None
    return bytes(found)


async def _tail(pipe: asyncio.StreamReader | None) -> str:
    """The last bytes up to the end, as one line of text."""
    assert pipe is not None
    found = b""
    while part := await pipe.read(_READ):
        found = (found + part)[-MOST_ERRORS:]
    text = found.decode(errors="replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()
