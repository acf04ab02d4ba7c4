"""Records under one prefix of the store, kept in memory and level with it. Knows nothing of what they mean."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from strata.core.errors import Compacted, StrataError
from strata.store.protocol import Store

log = logging.getLogger(__name__)

_RETRY_AFTER = 1.0  # seconds until a watch that broke off is begun again


class Followed:
    """Calls ``take(key, value)`` for every record and every change of one (None: it is gone), ``clear()`` before all
    of them are taken anew."""

    def __init__(
        self, store: Store, prefix: str, take: Callable[[str, bytes | None], None], clear: Callable[[], None]
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._take = take
        self._clear = clear
        self._task: asyncio.Task[None] | None = None
        self._revision = 0
        self.revisions: dict[str, int] = {}
        """At which revision each key that is there was last changed."""
        self._own: dict[str, int] = {}
        """Keys changed here, and at which revision: the watch brings those and older changes again, too late."""

    async def start(self) -> None:
        """Take all records, then follow their changes until ``stop``."""
        await self._load()
        self._task = asyncio.create_task(self._follow(), name=f"watch of {self._prefix}")

    async def stop(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def wrote(self, key: str, value: bytes | None, revision: int) -> None:
        """Somebody here changed ``key``, or read it: who wrote reads what was written."""
        if revision > max(self._revision, self._own.get(key, 0)):  # else the watch brought it, or a newer one
            self._own[key] = revision
            self._note(key, value, revision)

    def _note(self, key: str, value: bytes | None, revision: int) -> None:
        if value is None:
            self.revisions.pop(key, None)
        else:
            self.revisions[key] = revision
        self._take(key, value)

    async def _load(self) -> None:
        page = await self._store.range(self._prefix)
        self._clear()
        self.revisions.clear()
        for entry in page.entries:
            self._note(entry.key, entry.value, entry.modified)
        self._revision = page.revision
        self._own.clear()

    async def _follow(self) -> None:
        while True:
            try:
                stream = self._store.watch(self._prefix, start=self._revision + 1)
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    async for events in stream:
                        for event in events:
                            own = self._own.get(event.key, 0)
                            if event.revision > own:
                                self._note(event.key, event.value, event.revision)
                            if event.revision >= own:
                                self._own.pop(event.key, None)
                            self._revision = event.revision
            except Compacted:
                with contextlib.suppress(StrataError):
                    await self._load()
            except StrataError as error:
                log.warning("cannot follow changes", extra={"prefix": self._prefix, "reason": str(error)})
            await asyncio.sleep(_RETRY_AFTER)
