"""Records what happened to the fleet: first in the store's transition log, and from there in the local history.

All changes go the same way: this controller's go to the log, and come back through the watch like those of
all others; only then are they put into the history. A change that could not be written yet waits in memory.

Only the leader of a node's shard writes about it, which the store itself checks; so the log never says something old
after something new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.distinct import among
from strata.core.errors import Conflict
from strata.engine.effects import Change
from strata.fleet.controller.leadership import shard_key
from strata.fleet.history import transitions
from strata.fleet.history.history import History
from strata.fleet.history.transitions import FactChange, Transition
from strata.store.protocol import Delete, Event, Put, Store

log = logging.getLogger(__name__)

MOST_WAITING = 20_000_000
"""Node changes kept in memory while the store cannot be written; beyond that the oldest are dropped, and it is said.
Each takes eight bytes; a step over a large fleet brings millions."""

_BYTES = 1_000_000  # per transaction; etcd takes 1.5 MB


class HistoryRecorder:
    """Writes this controller's changes, and reads those of all controllers."""

    def __init__(self, store: Store, controller: str, path: Path | None, *, shards: int) -> None:
        self._store = store
        self._shards = shards
        self._controller = controller
        self._path = path
        self._written = 0
        self._waiting: list[_Noted] = []
        self._size = 0
        self._lost: set[int] = set()
        self.unwritten: list[tuple[str, npt.NDArray[np.int64]]] = []
        """Variables and uids of changes that were not ours to write any more; for the engine to forget."""
        self._turn = asyncio.Lock()
        self._to_index: list[tuple[int, Transition]] = []
        self._through = 0
        self.history: History | None = None

    async def open(self) -> list[Transition]:
        """Open the history and take in what the log holds since it was last closed; all rows of the log, in order."""
        if self._path is not None:
            self.history = await History.open(self._path)
        return await self.catch_up()

    async def catch_up(self) -> list[Transition]:
        """List the log rather than follow it: at the start, and after the watch fell behind."""
        page = await self._store.range(transitions.PREFIX)
        rows = sorted(((e.modified, transitions.decode(e.value, e.key)) for e in page.entries), key=lambda row: row[0])
        if self.history is not None:
            known = self.history.last_revision
            await self.history.append([row for row in rows if row[0] > known], through=page.revision)
        return [row for _, row in rows]

    def add(
        self, changes: Sequence[Change], uids: npt.NDArray[np.int64], wall: float, epochs: Mapping[int, int]
    ) -> None:
        """Note what a step of the engine found out, with what it then led."""
        noted = [FactChange(c.variable, c.old, c.new, c.source, c.cause, uids[c.nodes]) for c in changes]
        self._waiting.append(_Noted(wall, noted, dict(epochs)))
        self._size += self._waiting[-1].size
        while self._size > MOST_WAITING and len(self._waiting) > 1:
            lost = self._waiting.pop(0).size
            self._size -= lost
            log.error("history lost: the store could not be written for too long", extra={"nodes": lost})

    def read(self, events: Sequence[Event]) -> list[Transition]:
        """The rows of the log among ``events``; they go into the history at the next ``flush``."""
        rows = [
            (event.revision, transitions.decode(event.value, event.key))
            for event in events
            if event.value is not None and event.key.startswith(transitions.PREFIX)
        ]
        if self.history is not None:
            self._to_index += rows
        if events:
            self._through = events[-1].revision
        return [row for _, row in rows]

    async def flush(self) -> None:
        """Write what is noted to the log, and what came back from it to the history."""
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            # All that was noted under the same lead goes together.
            epochs = self._waiting[0].epochs
            count = next((n for n, noted in enumerate(self._waiting) if noted.epochs != epochs), len(self._waiting))
            # Taken out while it is written: should more come than can be kept, that is not what is dropped.
            part, self._waiting = self._waiting[:count], self._waiting[count:]
            try:
                while not await self._write(part, epochs):
                    epochs = {shard: epoch for shard, epoch in epochs.items() if shard not in self._lost}
            except BaseException:
                self._waiting[:0] = part
                raise
            self._note_unwritten(part, epochs)
            self._size -= sum(noted.size for noted in part)
        if self.history is not None and self._to_index:
            rows, self._to_index = self._to_index, []
            await self.history.append(rows, through=self._through)

    async def prune(self, before: float, living: npt.NDArray[np.int64]) -> None:
        """Forget what is older than ``before``, in the log and in the history."""
        page = await self._store.range(transitions.PREFIX)
        old = [entry.key for entry in page.entries if transitions.seq_of(entry.key) < int(before * 1e6)]
        for start in range(0, len(old), self._store.max_ops):
            await self._store.txn([Delete(key) for key in old[start : start + self._store.max_ops]])
        if self.history is not None:
            await self.history.prune(before, living)

    async def close(self) -> None:
        """Let go of the history."""
        if self.history is not None:
            await self.history.close()

    def _note_unwritten(self, noted: Sequence[_Noted], epochs: Mapping[int, int]) -> None:
        led = among(np.arange(self._shards), list(epochs))
        for change in (change for one in noted for change in one.changes):
            left = change.uids[~led[change.uids % self._shards]]
            if len(left):
                self.unwritten.append((change.variable, left))

    async def _write(self, noted: Sequence[_Noted], epochs: Mapping[int, int]) -> bool:
        """False: others lead some of the shards by now; what we saw there is theirs to record."""
        ops: list[Put] = []
        size = 0
        for wall, changes, _ in noted:
            for row in transitions.rows_of(wall, self._controller, self._ours(changes, epochs)):
                value = transitions.encode(row)
                if ops and (len(ops) >= self._store.max_ops - len(epochs) or size + len(value) > _BYTES):
                    if not await self._commit(ops, epochs):
                        return False
                    ops, size = [], 0
                self._written = max(self._written + 1, int(wall * 1e6))
                ops.append(Put(transitions.key_of(self._written), value))
                size += len(value)
        return not ops or await self._commit(ops, epochs)

    def _ours(self, changes: Sequence[FactChange], epochs: Mapping[int, int]) -> list[FactChange]:
        led = np.zeros(self._shards, dtype=bool)
        led[list(epochs)] = True
        kept = [change._replace(uids=change.uids[led[change.uids % self._shards]]) for change in changes]
        return [change for change in kept if len(change.uids)]

    async def _commit(self, ops: Sequence[Put], epochs: Mapping[int, int]) -> bool:
        """Write, if we still lead as we did. Keys are times; another may have taken the very same microsecond."""
        lead = {shard_key(shard): (shard, epoch) for shard, epoch in epochs.items()}
        while True:
            expect = {op.key: 0 for op in ops} | {key: epoch for key, (_, epoch) in lead.items()}
            try:
                await self._store.txn(ops, expect=expect)
                return True
            except Conflict as conflict:
                if conflict.where in lead:
                    self._lost = {lead[conflict.where][0]}
                    return False
                self._written += 1
                ops = [Put(transitions.key_of(self._written + i), op.value) for i, op in enumerate(ops)]
                self._written += len(ops)


class _Noted(NamedTuple):
    """What one step found out, when, and under which lead."""

    wall: float
    changes: list[FactChange]
    epochs: dict[int, int]

    @property
    def size(self) -> int:
        """Nodes."""
        return sum(len(change.uids) for change in self.changes)
