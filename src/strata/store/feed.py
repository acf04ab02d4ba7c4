"""Watching a store that lives in this process: the newest changes in memory, older ones from the store's log.

A watcher is a cursor and nothing else. One that is slow falls out of the memory and is served from the log; one
whose place in the log was compacted is told so. Nothing is queued per watcher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from strata.store.keys import compacted
from strata.store.protocol import Event

BATCH = 1000
"""Events after which a batch ends, at the next whole revision."""

KEEP_EVENTS = 8192
KEEP_BYTES = 16 << 20

ReadLog = Callable[[str, int, int], Awaitable[tuple[list[Event], int]]]
"""(prefix, start, limit) → events of whole revisions from ``start`` on, and the revision to go on from."""


class _Waiting:
    """A watcher for whom there is nothing: ``start`` is the revision that it waits for."""

    __slots__ = ("news", "prefix", "start")

    def __init__(self, prefix: str, start: int) -> None:
        self.prefix = prefix
        self.start = start
        self.news = asyncio.Event()


class Feed:
    """What watchers share: the newest revision, and the changes that led to it. Used in the event loop only."""

    def __init__(self, head: int, compacted: int = 0) -> None:
        self.head = head
        self.compacted = compacted
        self._recent: deque[tuple[int, Sequence[Event]]] = deque()
        self._kept_from = head + 1
        self._events = 0
        self._bytes = 0
        self._waiting: dict[_Waiting, None] = {}  # in order, so that two runs of a simulation wake the same ones first
        self._closed = False

    def publish(self, revision: int, events: Sequence[Event]) -> None:
        """Tell watchers of one more revision."""
        if revision <= self.head:
            return
        if revision != self.head + 1:
            # Somebody else wrote in between: those revisions are in the log only.
            self._forget(len(self._recent))
            self._kept_from = revision
        self._recent.append((revision, events))
        self._events += len(events)
        self._bytes += sum(len(e.value or b"") for e in events)
        self.head = revision
        while len(self._recent) > 1 and (self._events > KEEP_EVENTS or self._bytes > KEEP_BYTES):
            self._forget(1)
        for one in self._waiting:
            if revision < one.start:
                continue
            # Those whom it does not concern sleep on: most changes are of one kind, and there are dozens of watchers.
            if one.start < revision or any(event.key.startswith(one.prefix) for event in events):
                one.news.set()
            else:
                one.start = revision + 1

    def advance(self, revision: int) -> None:
        """The store went on to ``revision``; how is to be read from the log."""
        if revision > self.head:
            self._forget(len(self._recent))
            self.head = revision
            self._kept_from = revision + 1
            self._wake()

    def compact(self, revision: int) -> None:
        """Nothing up to ``revision`` can be watched any more."""
        self.compacted = max(self.compacted, revision)

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._wake()

    async def follow(self, prefix: str, start: int, read_log: ReadLog) -> AsyncIterator[Sequence[Event]]:
        """The changes under ``prefix`` from revision ``start`` on."""
        while not self._closed:
            if start <= self.compacted:
                raise compacted(start, self.compacted + 1)
            if start > self.head:
                start = await self._wait(prefix, start)
                continue
            if start >= self._kept_from:
                events, start = self._read_recent(prefix, start)
            else:
                events, start = await read_log(prefix, start, BATCH)
            if events:
                yield events

    async def _wait(self, prefix: str, start: int) -> int:
        """Until there is something under ``prefix``, or everybody is woken; the revision to go on from."""
        one = _Waiting(prefix, start)
        self._waiting[one] = None
        try:
            await one.news.wait()
        finally:
            self._waiting.pop(one, None)
        return one.start

    def _read_recent(self, prefix: str, start: int) -> tuple[list[Event], int]:
        events: list[Event] = []
        for position in range(start - self._kept_from, len(self._recent)):
            revision, changes = self._recent[position]
            events += [e for e in changes if e.key.startswith(prefix)]
            start = revision + 1
            if len(events) >= BATCH:
                break
        return events, start

    def _forget(self, count: int) -> None:
        for _ in range(count):
            revision, events = self._recent.popleft()
            self._events -= len(events)
            self._bytes -= sum(len(e.value or b"") for e in events)
            self._kept_from = revision + 1

    def _wake(self) -> None:
        for one in self._waiting:
            one.news.set()
