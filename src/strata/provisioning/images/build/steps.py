"""Runs the long, heavy commands that make images: beside us, their words in a log, and gone when we are to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from strata.core.errors import StrataError, Unavailable
from strata.provisioning.images.shelf import clear

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_ANSWER = 4 << 20
_CONTAINED = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
_NO_NETWORK = ("unshare", "--net")
_MOST_DYING = 10.0
"""Seconds that namespaces get to end in."""


def require(program: str) -> None:
    """Raise ``Unavailable`` unless it is installed."""
    if shutil.which(program, path=PATH) is None:
        raise Unavailable(f"{program} is not installed", hint=f"apt-get install {program}")


async def run(
    command: Sequence[str],
    *,
    log: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    answers: bool = False,
    contained: bool = False,
    network: Sequence[str] = (),
) -> tuple[int, bytes]:
    """Run ``command``; its status and, if it ``answers``, what it wrote to standard output. The rest goes to ``log``.
    Cancelled, it is killed with all its children. ``contained``: in namespaces of its own, so that whatever it starts
    and mounts is gone with it, and with us, even by kill -9. ``network``: what stands before it to give it one; without
    that, what is contained has none."""
    require(command[0])
    before: Sequence[str] = network
    if contained:
        before = ("setpriv", "--pdeathsig", "KILL", *(network or _NO_NETWORK), *_CONTAINED)
    with log.open("ab") as words, os.fdopen(os.memfd_create("order"), "w+b", buffering=0) as order:
        order.write(stdin)
        order.seek(0)
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            stdin=order,
            stdout=asyncio.subprocess.PIPE if answers else words,
            stderr=words,
            env={"PATH": PATH, "LANG": "C.UTF-8", **(env or {})},
            cwd=cwd or "/",
            start_new_session=True,
        )
    try:
        answer = b""
        if process.stdout is not None:
            while piece := await process.stdout.read(65536):
                answer += piece
                if len(answer) > _MOST_ANSWER:
                    raise StrataError("said more than it should", where=command[0])
        return await process.wait(), answer
    finally:
        if contained and process.returncode is None:
            await _end_namespaces(process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _end_namespaces(process: asyncio.subprocess.Process) -> None:
    """Kill the first process of the namespace: it is over when all others are, and only then is ``process``."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in map(int, children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    if children:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _MOST_DYING)


@contextlib.asynccontextmanager
async def workplace(root: Path) -> AsyncIterator[Path]:
    """A directory on the repository's file system that is gone at the end, whoever was killed in it."""
    place = root / "work" / secrets.token_hex(8)
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        await asyncio.to_thread(clear, place)
