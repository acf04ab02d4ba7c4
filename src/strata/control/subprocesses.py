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
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": PATH, "LANG": "C.UTF-8", **env},
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"the command {command[0]} could not be started: {error}"
    try:
        async with asyncio.timeout(limit):
            output, errors, _ = await asyncio.gather(
                _read(process, most_output), _tail(process.stderr), _feed(process.stdin, body)
            )
            if output is None:
                return f"the command said more than {most_output} bytes and was killed"
            status = await process.wait()
        return Finished(status, output, errors)
    except TimeoutError:
        return f"the command did not end within {limit:g} s and was killed"
    finally:
        # Also after a good end: a child that it left in the background would act without a fence.
        _kill(process)
        await process.wait()
        # A child that left the group may still hold our pipes: asyncio would keep them open.
        process._transport.close()  # type: ignore[attr-defined]


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _feed(pipe: asyncio.StreamWriter | None, body: bytes) -> None:
    assert pipe is not None
    # A command that does not want to know closes its end; that is no error.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(body)
        await pipe.drain()
    pipe.close()


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
