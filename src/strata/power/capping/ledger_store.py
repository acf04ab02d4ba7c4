"""Where the ledger of caps outlives a controller: the store, in chunks, of which only those that changed are written.

A chunk is named by its content; ``power/ledger`` lists the chunks and the nodes that they are about, and is written
last, and only if nobody else has written it since. So a controller that lost the lead cannot keep anything any more,
and what was not kept is not sent. It is megabytes, written before every command: not named records, and not a decision
of somebody. The audit log has the caps, and not this.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Callable

import msgspec
import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, Corrupt, Unavailable
from strata.core.intset import Runs
from strata.power.capping.ledger import moved
from strata.power.telemetry.columns import Uids, placed
from strata.store.protocol import Delete, Put, Store

HEAD = "power/ledger"
CHUNKS = "power/ledger-piece/"
CHUNK_BYTES = 512 * 1024
"""Bytes of a chunk before it is compressed."""
TOGETHER = 1_000_000
"""Bytes that go into one transaction; etcd takes 1.5 MiB."""


class _Head(msgspec.Struct, frozen=True):
    uids: Runs
    chunks: tuple[str, ...] = msgspec.field(name="pieces")


class LedgerStore:
    """For the nodes ``uids`` (ascending). ``leads``: whether this controller still
    has the lead."""

    def __init__(self, store: Store, uids: Uids, leads: Callable[[], bool]) -> None:
        self.lost = False
        """Another controller has written since."""
        self._store = store
        self._uids = uids
        self._leads = leads
        self._modified = 0
        self._kept: tuple[str, ...] = ()
        self._written: set[str] = set()
        """The chunks that are in the store, some of which may be nobody's: of a controller that died in between."""

    async def load(self) -> bytes | None:
        """What was kept last, for these nodes: those that were not there before are new in it. Empty: it is damaged."""
        entry = await self._store.get(HEAD)
        there = {one.key.removeprefix(CHUNKS): one.value for one in (await self._store.range(CHUNKS)).entries}
        self._modified = 0 if entry is None else entry.modified
        self._written = set(there)
        self._kept = ()
        if entry is None:
            return None
        try:
            head = msgspec.msgpack.decode(entry.value, type=_Head)
            snapshot = await asyncio.to_thread(_joined, [there[name] for name in head.chunks])
            places, same = placed(intset.unpack(head.uids), self._uids)
            found = await asyncio.to_thread(moved, snapshot, np.where(same, places, -1))
        except (msgspec.MsgspecError, zlib.error, KeyError, BadRequest, Corrupt):
            return b""
        self._kept = head.chunks
        return found

    async def save(self, kept: bytes) -> None:
        """Keep it. Raises ``Conflict`` where another controller keeps it now."""
        if not self._leads():
            raise Unavailable("another controller leads the machine's power now")
        chunks = await asyncio.to_thread(_cut, kept)
        names = tuple(name for name, _ in chunks)
        if names == self._kept and self._modified:
            return
        fresh = {CHUNKS + name: value for name, value in chunks if name not in self._written}
        size = 0
        batch: list[Put] = []
        for key, value in fresh.items():
            if batch and size + len(value) > TOGETHER:
                await self._store.txn(batch)
                batch, size = [], 0
            batch.append(Put(key, value))
            size += len(value)
        head = Put(HEAD, msgspec.msgpack.encode(_Head(intset.pack(self._uids), names)))
        if batch and size + len(head.value) > TOGETHER:
            await self._store.txn(batch)
            batch = []
        try:
            self._modified = await self._store.txn([*batch, head], expect={HEAD: self._modified})
        except Conflict:
            self.lost = True
            raise Conflict("another controller keeps the ledger of caps now", where=HEAD, revision=0) from None
        gone, self._kept, self._written = self._written - set(names), names, set(names)
        if gone:
            await self._store.txn([Delete(CHUNKS + name) for name in sorted(gone)])


async def forget(store: Store) -> None:
    """Nobody keeps caps any more."""
    if await store.get(HEAD) is None:
        return
    keys = [entry.key for entry in (await store.range(CHUNKS)).entries]
    await store.txn([Delete(HEAD), *(Delete(key) for key in keys)])


def _cut(kept: bytes) -> list[tuple[str, bytes]]:
    """The chunks and their names; each name once."""
    found: dict[str, bytes] = {}
    order = []
    for begin in range(0, len(kept), CHUNK_BYTES):
        value = zlib.compress(kept[begin : begin + CHUNK_BYTES], 1)
        name = hashlib.blake2b(value, digest_size=16).hexdigest()
        found[name] = value
        order.append(name)
    return [(name, found[name]) for name in order]


def _joined(chunks: list[bytes]) -> bytes:
    return b"".join(zlib.decompress(chunk) for chunk in chunks)
