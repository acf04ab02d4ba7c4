"""Helpers of the store tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from strata.store.protocol import Event, Store

LIMIT = 60.0
"""Seconds after which something that should happen has not."""


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def watching(store: Store, prefix: str, start: int) -> AsyncIterator[Watcher]:
    """A watch that is closed at the end."""
    watcher = Watcher(store.watch(prefix, start=start))
    try:
        yield watcher
    finally:
        await watcher.close()


class Watcher:
    """Reads a watch batch by batch, with a time limit, and keeps what it saw."""

    def __init__(self, stream: AsyncIterator[Sequence[Event]]) -> None:
        self._stream: Any = stream
        self.batches: list[list[Event]] = []

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    async def next(self) -> list[Event]:
        async with asyncio.timeout(LIMIT):
            self.batches.append(list(await anext(self._stream)))
        return self.batches[-1]

    async def until(self, revision: int) -> list[Event]:
        """Read on until an event of ``revision`` was seen."""
        while not self.batches or self.batches[-1][-1].revision < revision:
            await self.next()
        return self.events

    async def close(self) -> None:
        await self._stream.aclose()


async def eventually(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    async with asyncio.timeout(LIMIT):
        while not await question():  # noqa: ASYNC110 - a real daemon has no event to wait for
            await asyncio.sleep(0.02)
