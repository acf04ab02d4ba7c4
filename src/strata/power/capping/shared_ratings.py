"""What nodes can draw at most, told among controllers: each measures its own nodes, and one keeps the power of all.

A record is ``power/ratings/CONTROLLER``: few kinds of hardware, and the uids of each. It is written when it changes.
These are measurements, told among controllers and replaced as a whole: not what anybody decided, and not audited.
"""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np

from strata.core import intset
from strata.core.distinct import without
from strata.core.intset import Runs
from strata.power.capping.terms import Column
from strata.power.telemetry.columns import PowerColumns, Uids
from strata.store.protocol import Put, Store

PREFIX = "power/ratings/"
TOLD = ("least", "most", "supply")
EVERY = 3.0
"""Seconds."""
_UNKNOWN = -1.0


class Rated(msgspec.Struct, frozen=True, array_like=True):
    """Nodes with the same watts; -1: not known. (Of a node that tells nothing nothing is told.)"""

    watts: tuple[float, ...]
    uids: Runs


class SharedRatings:
    """One for a process."""

    def __init__(self, store: Store, me: str, columns: PowerColumns) -> None:
        self._store = store
        self._key = PREFIX + me
        self._columns = columns
        self._seen = b""
        self._told = b""
        self._taken: dict[str, int] = {}
        self._next = -np.inf

    async def exchange(self, own: Uids) -> None:
        """Tell of the nodes that are measured here, and take what others told of theirs; not more often than is of
        use."""
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + EVERY
            await self._tell(own)
            await self._take(own)

    async def _tell(self, own: Uids) -> None:
        own = own[np.isfinite(self._columns.column("most", own))]
        rows = np.stack([np.nan_to_num(self._columns.column(name, own), nan=_UNKNOWN) for name in TOLD], axis=1)
        seen = own.tobytes() + rows.tobytes()
        if seen == self._seen or not (len(own) or self._told):
            return
        value = await asyncio.to_thread(_packed, own, rows)
        if value != self._told:
            await self._store.txn([Put(self._key, value)])
            self._told = value
        self._seen = seen

    async def _take(self, own: Uids) -> None:
        for entry in (await self._store.range(PREFIX)).entries:
            if entry.key == self._key or self._taken.get(entry.key) == entry.modified:
                continue
            for rated in msgspec.msgpack.decode(entry.value, type=list[Rated]):
                uids = without(intset.unpack(rated.uids), own)
                known = {name: watts for name, watts in zip(TOLD, rated.watts, strict=True) if watts != _UNKNOWN}
                self._columns.put(uids, **known)
            self._taken[entry.key] = entry.modified


def _packed(uids: Uids, rows: Column) -> bytes:
    kinds, of = np.unique(rows, axis=0, return_inverse=True)
    of = of.reshape(-1)
    rated = [Rated(tuple(watts), intset.pack(uids[of == kind])) for kind, watts in enumerate(kinds.tolist())]
    return msgspec.msgpack.encode(rated)
