"""Whether the store takes writes: tried now and then with one that nobody sees. Knows no key."""

from __future__ import annotations

import asyncio

from strata.core.errors import StrataError
from strata.fleet.trouble import TroubleWatch
from strata.store.protocol import Store

EVERY = 3.0
"""Seconds between two tries: as late is it noticed that nothing can be written, and that it can again."""
PATIENCE = 3.0
"""Seconds after which a try without an answer has failed. One takes milliseconds."""

_TTL = 30.0


class Writable(TroubleWatch):
    """Reads and watches may go on while a disk is full or a majority is away; so only a write tells."""

    def __init__(self, store: Store, *, every: float = EVERY, patience: float = PATIENCE) -> None:
        super().__init__(every, "the store takes writes again")
        self._store = store
        self._patience = patience

    async def find(self) -> str:
        """Try once. A lease is as durable as any write, and neither has a revision nor wakes a watcher."""
        try:
            async with asyncio.timeout(self._patience):
                await self._store.revoke(await self._store.grant(_TTL))
        except TimeoutError:
            return f"the store takes no writes: no answer in {self._patience:g} s"
        except StrataError as error:
            return f"the store takes no writes: {error.detail}"
        return ""
