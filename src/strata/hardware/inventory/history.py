"""Hardware history in the store: newest first by key, so that a look at the last changes reads no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from strata.hardware.inventory.found import Change
from strata.store.protocol import Delete, Put, Store

PREFIX = "hardware-history/"
_PAGE = 500
_FAR = 10**16
"""Microseconds; later than any time that is written here."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Change, ...]).decode


def put(changes: Sequence[Change]) -> Put:
    """Write what has changed at one controller at one time."""
    return Put(f"{_key(changes[0].time)}/{changes[0].controller}", _encode(tuple(changes)))


async def newest(
    store: Store, *, since: float | None, limit: int, wanted: Callable[[Change], bool] = lambda change: True
) -> list[Change]:
    """The last changes that are wanted, newest first."""
    found: list[Change] = []
    async for page in _pages(store, ""):
        for change in page:
            if since is not None and change.time < since:
                return found
            if wanted(change):
                found.append(change)
                if len(found) >= limit:
                    return found
    return found


async def prune(store: Store, before: float) -> int:
    """Forget changes from before a time; how many records."""
    gone = 0
    while True:
        page = await store.range(PREFIX, after=_key(before), limit=min(_PAGE, store.max_ops))
        if page.entries:
            await store.txn([Delete(entry.key) for entry in page.entries])
            gone += len(page.entries)
        if not page.more:
            return gone


async def _pages(store: Store, after: str) -> AsyncIterator[list[Change]]:
    while True:
        page = await store.range(PREFIX, after=after, limit=_PAGE)
        yield [change for entry in page.entries for change in _decode(entry.value)]
        if not page.more:
            return
        after = page.entries[-1].key
        await asyncio.sleep(0)


def _key(time: float) -> str:
    return f"{PREFIX}{_FAR - int(time * 1e6):017d}"
