"""Whether the store takes writes: tried now and then with one that nobody sees. Knows no key."""

from __future__ import annotations

import asyncio
import logging

from strata.core.errors import StrataError
from strata.store.protocol import Store

log = logging.getLogger(__name__)

EVERY = 3.0
"""Seconds between two tries: as late is it noticed that nothing can be written, and that it can again."""
PATIENCE = 3.0
"""Seconds after which a try without an answer has failed. One takes milliseconds."""

_TTL = 30.0


class Writable:
    """Tries, for as long as ``run`` does. Reads and watches may go on while a disk is full or a majority is away; so
    only a write tells."""

    def __init__(self, store: Store, *, every: float = EVERY, patience: float = PATIENCE) -> None:
        self._store = store
        self._every = every
        self._patience = patience
        self.trouble = ""
        """Why nothing can be written; empty: it could at the last try."""

    async def run(self) -> None:
        """Try, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Try once. A lease is as durable as any write, and neither has a revision nor wakes a watcher."""
        before = self.trouble
        try:
            async with asyncio.timeout(self._patience):
                await self._store.revoke(await self._store.grant(_TTL))
            self.trouble = ""
        except TimeoutError:
            self.trouble = f"the store takes no writes: no answer in {self._patience:g} s"
        except StrataError as error:
            self.trouble = f"the store takes no writes: {error.detail}"
        if bool(before) != bool(self.trouble):
            log.log(logging.WARNING if self.trouble else logging.INFO, self.trouble or "the store takes writes again")
