"""Many devices at a time, so that whoever is slow or dead holds nobody up.

So many are spoken to at once, as long as they answer promptly. One that takes long gives its place to the next, and
goes on; only all of them together, the slow ones included, are bounded as well. What goes wrong with one is that one's
result (``strata.core.fault_isolation``), and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from strata.core.errors import OutcomeUnknown, StrataError
from strata.core.fault_isolation import contained

T = TypeVar("T")


class Place:
    """A place among those who are spoken to: one slot, given up early by the slow, and one of all the room."""

    __slots__ = ("_room", "_slots", "_timer", "_yielded")

    def __init__(self, slots: asyncio.Semaphore, room: asyncio.Semaphore, patience: float) -> None:
        self._slots = slots
        self._room = room
        self._yielded = False
        self._timer = asyncio.get_running_loop().call_later(patience, self.yields)

    def yields(self) -> None:
        """Let the next one begin."""
        if not self._yielded:
            self._yielded = True
            self._slots.release()

    def leaves(self, _: object = None) -> None:
        """It is over."""
        self._timer.cancel()
        self.yields()
        self._room.release()


class Pace:
    """``at_once`` that answer within ``patience`` seconds, and ``at_most`` in all (default: any number)."""

    def __init__(self, *, at_once: int, patience: float, at_most: int = sys.maxsize) -> None:
        self._patience = patience
        self._slots = asyncio.Semaphore(at_once)
        self._room = asyncio.Semaphore(at_most)

    async def place(self) -> Place:
        """Wait for a place. Whoever takes it calls its ``leaves``."""
        await self._room.acquire()
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            self._room.release()
            raise
        return Place(self._slots, self._room, self._patience)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Place]:
        """A place for the length of the block."""
        place = await self.place()
        try:
            yield place
        finally:
            place.leaves()

    async def each(
        self,
        items: Iterable[T],
        work: Callable[[T, Place], Awaitable[None]],
        lost: Callable[[T, StrataError], None],
        *,
        limit: float = float("inf"),
    ) -> None:
        """``work`` for every item, side by side; a task for those that have a place, and for no others.

        Whatever one raises, or that it took longer than ``limit`` seconds, goes to ``lost``, and the others go on.
        """
        async with asyncio.TaskGroup() as group:
            for item in items:
                place = await self.place()
                group.create_task(_run(work, item, place, lost, limit)).add_done_callback(place.leaves)


async def _run(
    work: Callable[[T, Place], Awaitable[None]],
    item: T,
    place: Place,
    lost: Callable[[T, StrataError], None],
    limit: float,
) -> None:
    try:
        async with asyncio.timeout(limit if limit < float("inf") else None) as watch:
            with contained(str(item)[:200]):
                await work(item, place)
    except TimeoutError:
        assert watch.expired()
        lost(item, OutcomeUnknown(f"it took longer than {limit:g} s, and was given up"))
    except StrataError as error:
        lost(item, error)
