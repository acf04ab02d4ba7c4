"""What is done to one machine: one thing after the other, each to its end, and what goes on beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)
_PATIENCE = 5.0
"""Seconds for what is being done to the machine when its BMC ends."""


class Actions:
    """The actions on the machine called ``name``. ``stop`` it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._acts: set[asyncio.Task[None]] = set()
        self._aside: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Let what is being done come to its end if that is soon; end all the rest."""
        await _end(self._aside)
        if self._acts:
            await asyncio.wait(self._acts, timeout=_PATIENCE)
        await _end(self._acts)
        await _end(self._aside)  # what those may have left behind

    async def alone(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it alone, and to its end even if whoever asked is gone: half a power cycle is a machine that is off."""

        async def act() -> None:
            async with self._lock:
                await work()

        task = asyncio.get_running_loop().create_task(act())
        self._acts.add(task)
        task.add_done_callback(self._acted)
        await asyncio.shield(task)

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it beside all else; what goes wrong is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._done)
        return task

    def _acted(self, task: asyncio.Task[None]) -> None:
        self._acts.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked has it, if there is anybody still

    def _done(self, task: asyncio.Task[None]) -> None:
        self._aside.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: %s", self._name, task.exception())


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
