"""The workload manager's queue, as it was last told of: one record in the store, for whoever runs a policy.

A snapshot replaces the one before, and is not gone by after its time: a queue of yesterday says nothing about today.
"""

from __future__ import annotations

import zlib

import msgspec

from strata.core.errors import BadRequest
from strata.store.protocol import Put, Store

KEY = "power/queue"
MOST_BYTES = 1_000_000
"""Of what is kept: what every store takes as one value."""


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """A job that waits."""

    job: str
    nodes: int
    queue: str
    user: str
    time_limit: float | None


class Running(msgspec.Struct, frozen=True, array_like=True):
    """What was told of a job that runs."""

    job: str
    ends: float | None
    cap: float | None


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot; those that are to start first come first."""

    author: str
    time: float
    good_until: float
    waiting: tuple[Waiting, ...]
    running: tuple[Running, ...]


class QueueBook:
    """Keeps the record, and reads it again only where it has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: tuple[int, QueueRecord] | None = None

    async def put(self, record: QueueRecord) -> None:
        """Replace what was told before."""
        value = zlib.compress(msgspec.msgpack.encode(record), 1)
        if len(value) > MOST_BYTES:
            raise BadRequest("the queue is too long to be kept", where="waiting", hint="tell of the first jobs only")
        await self._store.txn([Put(KEY, value)])

    async def get(self) -> QueueRecord | None:
        """What was told last, however long ago."""
        entry = await self._store.get(KEY)
        if entry is None:
            return None
        if self._read is None or self._read[0] != entry.modified:
            record = msgspec.msgpack.decode(zlib.decompress(entry.value), type=QueueRecord)
            self._read = (entry.modified, record)
        return self._read[1]

    async def fresh(self, now: float) -> QueueRecord | None:
        """What was told last, if it is still to be gone by."""
        found = await self.get()
        return found if found is not None and now < found.good_until else None
