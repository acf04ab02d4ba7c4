"""The workload manager's queue, as it was last told of: one value in the store, for whoever runs a policy.

A snapshot replaces the one before. It is one compressed value and not named records (``store.records``): all jobs are
told together, every minute or so, and may be 30,000.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

from strata.core.errors import BadRequest
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.power.queue.records import Queue, QueueTold, QueueView, RunningJob, WaitingJob
from strata.store.protocol import Put

KEY = "power/queue"
MOST_BYTES = 1_000_000
"""Of what is kept: what every store takes as one value."""

_T = TypeVar("_T", bound=msgspec.Struct)


class PowerQueue:
    """The queue is the whole machine's: a right to it reaches beyond any scope."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read: tuple[int, Queue] = (0, Queue())
        """As it was read at a revision: it is decoded again only where it has changed."""

    async def tell(self, who: Principal, told: QueueTold) -> QueueView:
        """Tell of the whole queue. It replaces what was told before, and is not gone by after ``good_for`` seconds."""
        now = self._fleet.controller.clock.wall()
        rows = {name: [msgspec.structs.astuple(one) for one in getattr(told, name)] for name in ("waiting", "running")}
        kept = {"author": who.name, "time": now, "good_until": now + told.good_for, **rows}
        value = zlib.compress(msgspec.msgpack.encode(kept), 1)
        if len(value) > MOST_BYTES:
            raise BadRequest("the queue is too long to be kept", where="waiting", hint="tell of the first jobs only")
        detail = {name: len(jobs) for name, jobs in rows.items()}
        await self._fleet.ledger.commit(who.name, "power-queue.put", "queue", [Put(KEY, value)], None, detail)
        return await self.queue(who)

    async def queue(self, who: Principal) -> QueueView:
        """Which jobs wait and how long those that run still may, as it was last told, and whether policies go by it."""
        found = await self._latest()
        return QueueView(**msgspec.structs.asdict(found), fresh=found.is_fresh(self._fleet.controller.clock.wall()))

    async def fresh(self, now: float) -> Queue | None:
        """What was told last, if it is still to be gone by."""
        found = await self._latest()
        return found if found.is_fresh(now) else None

    async def _latest(self) -> Queue:
        entry = await self._fleet.store.get(KEY)
        if entry is not None and entry.modified != self._read[0]:
            kept = msgspec.msgpack.decode(zlib.decompress(entry.value))
            waiting, running = _jobs(WaitingJob, kept.pop("waiting")), _jobs(RunningJob, kept.pop("running"))
            self._read = (entry.modified, Queue(**kept, waiting=waiting, running=running))
        return self._read[1]


def _jobs(kind: type[_T], rows: list[list[Any]]) -> tuple[_T, ...]:
    """Jobs are kept without the names of their fields."""
    names = kind.__struct_fields__
    return tuple(kind(**dict(zip(names, row, strict=True))) for row in rows)
