"""What lies between a controller and the rest of its world: delay, loss, duplicates, clogs, pauses.

A request that was sent arrives even if its sender has died meanwhile; what an answer's loss leaves behind is an unknown
outcome. All chance comes from one seeded source, all time from the event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from simulation.mechanisms import Mechanisms
from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import Unavailable
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.store.memory import MemoryStore
from strata.store.protocol import Entry, Event, Op, Page
from strata.virtual.fleet.driver import SimDriver

T = TypeVar("T")

CANARY = "strata_0123456789abcdef_c4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4"
"""A secret that must never be seen again."""


class Weather(msgspec.Struct, kw_only=True):
    """How bad it is. Probabilities per message, seconds."""

    loss: float = 0.0
    delay: float = 0.0
    clogs: float = 0.0
    clog: float = 0.0
    faults: float = 0.0
    """Store requests that fail without effect (I/O errors, no space)."""

    @classmethod
    def draw(cls, chance: random.Random) -> Weather:
        """As in FAULTS: loss up to 30 %, delay up to 100 ms, clogs up to 5 s, I/O faults up to 10 %."""
        return cls(
            loss=chance.choice((0.0, 0.05, 0.3)) * chance.random(),
            delay=chance.uniform(0, 0.1),
            clogs=chance.choice((0.0, 0.02)),
            clog=chance.uniform(0, 5),
            faults=chance.choice((0.0, 0.0, 0.1)) * chance.random(),
        )


class Line:
    """One controller's connection to everything else. ``pause`` stops it as SIGSTOP would; ``cut`` kills it."""

    def __init__(self, weather: Weather, chance: random.Random) -> None:
        self.weather = weather
        self._chance = chance
        self._going = asyncio.Event()
        self._going.set()

    def pause(self) -> None:
        """Nothing gets in or out."""
        self._going.clear()

    def go_on(self) -> None:
        """Whatever waited goes on."""
        self._going.set()

    async def travel(self) -> None:
        """The time that a message takes."""
        weather = self.weather
        wait = self._chance.uniform(0, weather.delay) if weather.delay else 0.0
        if self._chance.random() < weather.clogs:
            wait += self._chance.uniform(0, weather.clog)
        await asyncio.sleep(wait)

    def lost(self) -> bool:
        """Whether a message is lost."""
        return self._chance.random() < self.weather.loss

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Send a request and wait for the answer; ``Unavailable`` if either is lost (the work may have been done)."""
        await self._going.wait()
        delivery = asyncio.ensure_future(self._deliver(work))
        try:
            result = await asyncio.shield(delivery)
        except asyncio.CancelledError:
            delivery.add_done_callback(_look_away)  # the sender died; the message is still on its way
            raise
        await self._going.wait()
        return result

    async def _deliver(self, work: Callable[[], Awaitable[T]]) -> T:
        await self.travel()
        if self.lost():
            await asyncio.sleep(1.0)
            raise Unavailable("no answer", where="network")
        result = await work()
        await self.travel()
        if self.lost():
            await asyncio.sleep(1.0)
            raise Unavailable("the answer was lost", where="network")
        return result

    async def when_going(self) -> None:
        """Wait out a pause."""
        await self._going.wait()


def _look_away(task: asyncio.Future[object]) -> None:
    if not task.cancelled():
        task.exception()


class LinkedStore:
    """The shared store as one controller reaches it. Without ``durable`` it says yes before it has written."""

    max_ops = 128

    def __init__(self, store: MemoryStore, line: Line, chance: random.Random, mechanisms: Mechanisms) -> None:
        self._store = store
        self._line = line
        self._chance = chance
        self._durable = mechanisms.durable
        self._alive = True
        self._unwritten: set[asyncio.Future[None]] = set()

    def die(self) -> None:
        """What was not written yet never will be."""
        self._alive = False

    async def get(self, key: str) -> Entry | None:
        return await self._line.call(lambda: self._store.get(key))

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        return await self._line.call(lambda: self._store.range(prefix, after=after, limit=limit, revision=revision))

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        if self._chance.random() < self._line.weather.faults:
            raise Unavailable("no space left on device", where="disk")
        if not self._durable and any(op.key.startswith("desire/") for op in ops):
            self._unwritten.add(asyncio.ensure_future(self._later(ops)))
            return await self._store.revision()
        return await self._line.call(lambda: self._store.txn(ops, expect=expect))

    async def _later(self, ops: Sequence[Op]) -> None:
        await asyncio.sleep(5.0)
        if self._alive:
            await self._store.txn(ops)

    async def revision(self) -> int:
        return await self._line.call(self._store.revision)

    async def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        async for events in self._store.watch(prefix, start=start):
            await self._line.travel()
            await self._line.when_going()
            if self._line.lost():
                raise Unavailable("the stream broke off", where="network")
            yield events

    async def grant(self, ttl: float) -> int:
        return await self._line.call(lambda: self._store.grant(ttl))

    async def renew(self, lease: int) -> bool:
        return await self._line.call(lambda: self._store.renew(lease))

    async def revoke(self, lease: int) -> None:
        await self._line.call(lambda: self._store.revoke(lease))

    async def compact(self, revision: int) -> None:
        await self._line.call(lambda: self._store.compact(revision))

    async def backup(self, path: Path) -> int:
        return await self._store.backup(path)

    async def check(self) -> list[str]:
        return await self._store.check()

    async def close(self) -> None:
        """The shared store stays."""


def _beyond_the_driver(batch: Batch) -> Batch:
    """A request on the wire: from here on only the device can tell whether it is too late."""
    return Batch(
        names=batch.names, uids=batch.uids, goals=batch.goals, epochs=batch.epochs, generation=batch.generation
    )


class LinkedDriver:
    """A driver whose requests cross the network after it has looked whether it still leads."""

    def __init__(self, driver: SimDriver, line: Line, clock: Callable[[], float], mechanisms: Mechanisms) -> None:
        self.name = driver.name
        self._driver = driver
        self._line = line
        self._clock = clock
        self._mechanisms = mechanisms

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        if self._mechanisms.fencing and self._clock() > batch.valid_until:
            return Outcomes.all(Outcome.FENCED, len(batch), "this controller no longer leads the node")
        batch = _beyond_the_driver(batch)
        try:
            outcomes = await self._line.call(lambda: self._driver.act(mutation, batch))
        except Unavailable as error:
            reason = f"{error}; sent with Authorization: Bearer {CANARY}"
            return Outcomes.all(Outcome.UNKNOWN, len(batch), reason)
        failed = np.flatnonzero(outcomes.codes == Outcome.FAILED)
        said = {int(at): f"{outcomes.reasons.get(int(at), '')} [token {CANARY}]" for at in failed}
        return Outcomes(outcomes.codes, {**outcomes.reasons, **said})

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return await self._line.call(lambda: self._driver.observe(variables, batch))

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        if not self._mechanisms.guards:
            return [""] * len(batch)
        return await self._line.call(lambda: self._driver.permits(guard, batch))
