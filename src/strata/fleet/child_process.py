"""A daemon of the distribution that runs as our child: started, kept up, and gone when we are gone.

If it dies it is started again, ever more slowly; if *we* die, even by kill -9, the kernel tells it to stop.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from strata.core.errors import Unavailable
from strata.fleet.tasks import cancelled

log = logging.getLogger(__name__)

START_LIMIT = 10.0
"""Seconds within which it must be up."""
STOP_LIMIT = 5.0
FIRST_BACK_OFF = 0.25
LONGEST_BACK_OFF = 30.0
STABLE_AFTER = 60.0
"""Seconds of running after which an earlier crash is forgotten."""
_COMPLAINT = 2000
_PR_SET_PDEATHSIG = 1
_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Child:
    """One supervised daemon. ``is_up`` tells whether it does its work yet; ``farewell``: the signals that end it, the
    kindest first; ``inherits``: descriptors that it gets, under the same numbers."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        is_up: Callable[[], Awaitable[bool]],
        *,
        package: str,
        farewell: Sequence[signal.Signals] = (signal.SIGTERM,),
        inherits: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._argv = (find(argv[0], package), *argv[1:])
        self._is_up = is_up
        self._farewell = farewell
        self._inherits = tuple(inherits)
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often it had to be started again."""

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process and running else None

    async def start(self) -> None:
        """Run it; returns when it is up. ``Unavailable`` holds its own words."""
        self._process = process = await self._spawn()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_LIMIT
        while process.returncode is None and loop.time() < deadline:
            if await self._is_up():
                self._task = asyncio.create_task(self._supervise(), name=self.name)
                return
            await asyncio.sleep(0.02)
        await self._end(process)
        assert process.stderr is not None
        said = (await process.stderr.read(_COMPLAINT)).decode(errors="replace").strip()
        raise Unavailable(f"{self.name} does not start: {said or 'it gives no reason'}", where=" ".join(self._argv))

    async def stop(self) -> None:
        """End it."""
        await cancelled(self._task)
        self._task = None
        if self._process is not None:
            await self._end(self._process)
            self._process = None

    async def _spawn(self) -> Process:
        # A session of its own: helpers that outlive a killed daemon can then be found and ended.
        return await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": _FOLDERS},
            start_new_session=True,
            pass_fds=self._inherits,
            preexec_fn=_dies_with(os.getpid()),
        )

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        wait = FIRST_BACK_OFF
        while True:
            assert self._process is not None
            began = loop.time()
            said = await _last_words(self._process)
            code = await self._process.wait()
            _end_group(self._process.pid)
            if loop.time() - began > STABLE_AFTER:
                wait = FIRST_BACK_OFF
            log.error("%s ended; starting it again", self.name, extra={"code": code, "said": said, "after_s": wait})
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_BACK_OFF)
            self.restarts += 1
            self._process = await self._spawn()

    async def _end(self, process: Process) -> None:
        for how in self._farewell if process.returncode is None else ():
            with suppress(ProcessLookupError):
                process.send_signal(how)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_LIMIT)
                break
        _end_group(process.pid)
        await process.wait()


async def _last_words(process: Process) -> str:
    """The end of what it says until it closes its mouth."""
    assert process.stderr is not None
    said = b""
    while piece := await process.stderr.read(4096):
        said = (said + piece)[-_COMPLAINT:]
    return said.decode(errors="replace").strip()


def _end_group(group: int) -> None:
    """End what is left of a session that we started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def find(binary: str, package: str) -> str:
    """Where a program is, or how to get it. A path is taken as it is."""
    found = shutil.which(binary, path=_FOLDERS)
    if found is None:
        raise Unavailable(f"{binary} is not installed", hint=f"apt-get install {package}")
    return found


def _dies_with(parent: int) -> Callable[[], None]:
    """For a child, before it becomes the daemon: ask the kernel to stop it when ``parent`` is gone."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask
