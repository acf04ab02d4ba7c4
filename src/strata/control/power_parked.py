"""The nodes that a policy has stopped, kept in the store: it may start those again, and no others."""

from __future__ import annotations

import msgspec
import numpy as np

from strata.core import intset
from strata.core.intset import Runs
from strata.power.columns import Uids
from strata.store.protocol import Put, Store

PARKED = "power/parked"


class Parked:
    """One for a process; level with the store after ``load``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.uids: Uids = np.empty(0, np.int64)
        """Ascending."""

    async def load(self) -> None:
        """What is kept."""
        entry = await self._store.get(PARKED)
        self.uids = intset.unpack(msgspec.msgpack.decode(entry.value, type=Runs) if entry else ())

    async def add(self, uids: Uids) -> None:
        """A policy is about to stop these."""
        await self._keep(np.union1d(self.uids, uids))

    async def remove(self, uids: Uids) -> None:
        """It has started these again."""
        await self._keep(np.setdiff1d(self.uids, uids))

    async def _keep(self, uids: Uids) -> None:
        self.uids = uids
        await self._store.txn([Put(PARKED, msgspec.msgpack.encode(intset.pack(uids)))])
