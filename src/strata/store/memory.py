"""A store in memory: nothing survives. For tests, simulation, and as the plainest reading of the protocol.

Leases follow the event loop's clock, so that under a virtual clock they end in virtual time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from strata.store.dump import write_dump
from strata.store.feed import Feed
from strata.store.keys import check_txn, compacted, conflict, end_of, in_future, not_empty
from strata.store.lease import check_ttl, lease_gone, new_lease_id
from strata.store.protocol import Delete, Entry, Event, Op, Page, Put

Change = tuple[int, str, Entry | None, Entry | None]
"""Revision, key, what it became, what it was."""


class MemoryStore:
    """Keeps everything in dictionaries, and every change in a list until it is compacted."""

    max_ops = 10_000

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._entries: dict[str, Entry] = {}
        self._sorted: list[str] = []
        self._is_sorted = True
        self._log: list[Change] = []
        self._revision = 1
        self._compacted = 0
        self._leases: dict[int, _Lease] = {}
        self._feed = Feed(self._revision)
        self._timer: asyncio.TimerHandle | None = None

    async def get(self, key: str) -> Entry | None:
        self._expire()
        return self._entries.get(key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        self._expire()
        at = self._revision if revision is None else revision
        if at > self._revision:
            raise in_future(at, self._revision)
        if at < self._compacted:
            raise compacted(at, self._compacted)
        if at == self._revision:
            entries, keys = self._entries, self._keys()
        else:
            entries = self._as_of(at)
            keys = sorted(entries)
        first = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
        end = end_of(prefix)
        last = len(keys) if end is None else bisect_left(keys, end)
        stop = min(last, first + limit) if limit else last
        return Page(tuple(entries[key] for key in keys[first:stop]), at, stop < last)

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        check_txn(ops, expect, self.max_ops)
        self._expire()
        for key, expected in (expect or {}).items():
            found = self._entries.get(key)
            modified = found.modified if found else 0
            if modified != expected:
                raise conflict(key, expected, modified)
        for op in ops:
            if isinstance(op, Put) and op.lease and op.lease not in self._leases:
                raise lease_gone(op.lease)
        self._apply(ops)
        return self._revision

    async def revision(self) -> int:
        self._expire()
        return self._revision

    def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        return self._feed.follow(prefix, start or self._revision + 1, self._read_log)

    async def grant(self, ttl: float) -> int:
        check_ttl(ttl)
        lease = new_lease_id()
        self._leases[lease] = _Lease(ttl, self._clock() + ttl)
        self._arm()
        return lease

    async def renew(self, lease: int) -> bool:
        self._expire()
        held = self._leases.get(lease)
        if held is None:
            return False
        held.deadline = self._clock() + held.ttl
        return True

    async def revoke(self, lease: int) -> None:
        self._end(lease)

    async def compact(self, revision: int) -> None:
        if revision > self._revision:
            raise in_future(revision, self._revision)
        self._compacted = max(self._compacted, revision)
        self._feed.compact(self._compacted)
        del self._log[: self._log_position(self._compacted + 1)]

    async def backup(self, path: Path) -> int:
        page = await self.range("")
        await asyncio.to_thread(write_dump, path, page.revision, page.entries)
        return page.revision

    async def check(self) -> list[str]:
        return []

    async def close(self) -> None:
        self._feed.close()
        if self._timer:
            self._timer.cancel()

    async def load(self, entries: Iterable[Entry], above: int, *, overwrite: bool = False) -> None:
        """Hold ``entries`` and nothing else, at a revision above ``above``; for restoring."""
        if self._entries and not overwrite:
            raise not_empty(next(iter(self._entries)))
        revision = max(above, self._revision) + 1
        self._entries = {e.key: e for e in entries}
        self._is_sorted = False
        self._leases.clear()
        self._log.clear()
        self._revision = self._compacted = revision
        self._feed.compact(revision)
        self._feed.advance(revision)

    def _apply(self, ops: Sequence[Op]) -> None:
        revision = self._revision + 1
        events: list[Event] = []
        for op in ops:
            old = self._entries.get(op.key)
            new: Entry | None = None
            if isinstance(op, Put):
                new = Entry(op.key, op.value, old.created if old else revision, revision, op.lease)
                self._entries[op.key] = new
                if old is None:
                    self._sorted.append(op.key)
                    self._is_sorted = False
            elif old is None:
                continue
            else:
                del self._entries[op.key]
                self._is_sorted = False
            if old and old.lease:
                self._leases[old.lease].keys.discard(op.key)
            if new and new.lease:
                self._leases[new.lease].keys.add(op.key)
            self._log.append((revision, op.key, new, old))
            events.append(Event(revision, op.key, new.value if new else None))
        if events:
            self._revision = revision
            self._feed.publish(revision, events)

    def _keys(self) -> list[str]:
        if not self._is_sorted:
            self._sorted = sorted(self._entries)
            self._is_sorted = True
        return self._sorted

    def _as_of(self, revision: int) -> dict[str, Entry]:
        entries = dict(self._entries)
        for position in range(len(self._log) - 1, self._log_position(revision + 1) - 1, -1):
            _, key, _, old = self._log[position]
            if old is None:
                entries.pop(key, None)
            else:
                entries[key] = old
        return entries

    def _log_position(self, revision: int) -> int:
        return bisect_left(self._log, revision, key=lambda change: change[0])

    async def _read_log(self, prefix: str, start: int, limit: int) -> tuple[list[Event], int]:
        events: list[Event] = []
        for position in range(self._log_position(start), len(self._log)):
            revision, key, new, _ = self._log[position]
            if len(events) >= limit and revision != events[-1].revision:
                return events, revision
            if key.startswith(prefix):
                events.append(Event(revision, key, new.value if new else None))
        return events, self._revision + 1

    def _end(self, lease: int) -> None:
        held = self._leases.get(lease)
        if held is not None:
            self._apply([Delete(key) for key in sorted(held.keys)])
            del self._leases[lease]

    def _expire(self) -> None:
        if self._leases:
            now = self._clock()
            for lease in [i for i, held in self._leases.items() if held.deadline <= now]:
                self._end(lease)

    def _arm(self) -> None:
        """Wake when the next lease may end, so that its watchers hear of it without anybody's asking."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._leases:
            wait = max(0.0, min(held.deadline for held in self._leases.values()) - self._clock())
            self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._expire()
        self._arm()


class _Lease:
    __slots__ = ("deadline", "keys", "ttl")

    def __init__(self, ttl: float, deadline: float) -> None:
        self.ttl = ttl
        self.deadline = deadline
        self.keys: set[str] = set()
