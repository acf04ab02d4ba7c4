"""The event log: what happened to hardware, numbered, in a local file. Never blocks the event loop.

An event is shown once it is in the file, so no number that anybody has seen is ever given again. Who follows is
a number and nothing else: the newest events are served from memory, older ones from the file, and who was away for
longer than events are kept is told to list again (``Compacted``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec.structs import asdict

from strata.core.errors import BadRequest, Compacted, Unavailable
from strata.fleet.tasks import cancelled
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.words import RANK
from strata.store.side_file import FileThread, connect

log = logging.getLogger(__name__)

Numbered = tuple[int, HardwareEvent]
"""An event and its sequence number."""

_FORMAT = 1
_BY_INDEX = 1000
"""Up to so many nodes, events are found by node; above that, walking all of them backwards is faster."""
# AUTOINCREMENT: a number is never given twice, even when the newest events were dropped.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, severity INTEGER NOT NULL, source TEXT NOT NULL,
  key TEXT NOT NULL, node TEXT NOT NULL, bmc TEXT NOT NULL, message TEXT NOT NULL, message_id TEXT NOT NULL,
  fields BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_node ON events (node, seq);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_FIELDS = ("time", "severity", "source", "key", "node", "bmc", "message", "message_id", "fields")
_COLUMNS = f"seq, {', '.join(_FIELDS)}"
_SEVERITIES: tuple[Severity, ...] = tuple(RANK)
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, str]).decode
_NONE = b"{}"


class EventFile:
    """One connection. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path, _SCHEMA, _FORMAT)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def bounds(self) -> tuple[int, int]:
        """The oldest and the newest number; the oldest is above the newest when there are no events."""
        newest = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").get or 0
        oldest = self._db.execute("SELECT min(seq) FROM events").get
        return (newest + 1 if oldest is None else oldest), newest

    def add(self, events: Sequence[HardwareEvent], marks: Mapping[str, str]) -> int:
        """Write events and marks in one transaction; the number of the first event."""
        with self._db:
            self._db.executemany(
                f"INSERT INTO events ({', '.join(_FIELDS)}) VALUES (:{', :'.join(_FIELDS)})", map(_row, events)
            )
            self._db.executemany("INSERT OR REPLACE INTO marks VALUES (?,?)", marks.items())
        return int(self._db.last_insert_rowid()) - len(events) + 1

    def after(self, seq: int, limit: int) -> list[Numbered]:
        """Events above a number, oldest first."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))
        return [_event(row) for row in rows]

    def page(
        self, nodes: Sequence[str] | None, least: Severity, since: float, before: int, limit: int
    ) -> list[Numbered]:
        """Events of ``nodes`` (None: all, also those of no node) below a number, newest first."""
        where = "severity >= ? AND time >= ? AND seq < ?"
        given: list[float | str] = [RANK[least], since, before]
        if nodes is not None:
            column = "node" if len(nodes) <= _BY_INDEX else "+node"
            where += f" AND {column} IN (SELECT value FROM json_each(?))"
            given.append(_encode(nodes).decode())
        query = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY seq DESC LIMIT ?"
        return [_event(row) for row in self._db.execute(query, (*given, limit))]

    def prune(self, keep: int, before: float) -> int:
        """Drop all but the newest ``keep`` events, and those from before ``before``; the oldest number that is left."""
        with self._db:
            oldest, newest = self.bounds()
            young = self._db.execute("SELECT seq FROM events WHERE time >= ? ORDER BY seq LIMIT 1", (before,)).get
            first = max(newest - keep + 1, newest + 1 if young is None else young)
            if first > oldest:
                self._db.execute("DELETE FROM events WHERE seq < ?", (first,))
        return max(first, oldest)

    def marks(self) -> dict[str, str]:
        """All marks."""
        return dict(self._db.execute("SELECT name, value FROM marks"))


def _row(event: HardwareEvent) -> dict[str, Any]:
    fields = _encode(event.fields) if event.fields else _NONE
    return asdict(event) | {"severity": RANK[event.severity], "fields": fields}


def _event(row: tuple[Any, ...]) -> Numbered:
    values = dict(zip(_FIELDS, row[1:], strict=True))
    values["severity"] = _SEVERITIES[values["severity"]]
    values["fields"] = {} if values["fields"] == _NONE else _fields(values["fields"])
    return row[0], HardwareEvent(**values)


_T = TypeVar("_T")
_BATCH = 5000
_FOLLOW = 1000
_RETRY_AFTER = 1.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept. Times in seconds."""

    keep: int = 1_000_000
    """Events; about 300 bytes each."""
    keep_for: float = 30 * 86400.0
    prune_every: float = 600.0
    recent: int = 8192
    """Events in memory for those who follow."""
    waiting: int = 200_000
    """Events that wait for the file when it cannot be written; then the oldest go, and are counted."""


class EventLog:
    """One file. ``take`` is an ``EventSink``."""

    def __init__(
        self, path: Path, *, settings: LogSettings | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings or LogSettings()
        self.lost = 0
        """Events that were never written: the file could not be, for too long."""
        self._clock = clock
        self._waiting: deque[HardwareEvent] = deque()
        self._new_marks: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._recent: deque[Numbered] = deque(maxlen=self.settings.recent)
        self._oldest = 1
        self.newest = 0
        """The highest number so far."""
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writer = _Worker(path)
        self._reader = _Worker(path)
        self._pruned = 0.0

    async def start(self) -> None:
        """Open the file."""
        self._oldest, self.newest = await self._writer.run(lambda file: file.bounds())
        self._pruned = self._clock()
        await self.prune()
        self._marks = await self._writer.run(lambda file: file.marks())
        self._task = asyncio.create_task(self._write(), name="event log")

    async def stop(self) -> None:
        """Write what waits, and let go of the file. Followers end."""
        if self._task is not None:
            await cancelled(self._task)
            self._task = None
            with suppress(Unavailable):
                while self._waiting or self._new_marks:
                    await self._write_some()
        self._news.set()
        await self._writer.close()
        await self._reader.close()

    def take(self, events: Sequence[HardwareEvent]) -> None:
        """Have these written."""
        self._waiting.extend(events)
        over = len(self._waiting) - self.settings.waiting
        for _ in range(over):
            self._waiting.popleft()
        if over > 0:
            self.lost += over
        self._wake.set()

    def mark(self, name: str) -> str:
        """A place in somebody's stream that was kept with ``set_mark``; empty: none."""
        return self._marks.get(name, "")

    def set_mark(self, name: str, value: str) -> None:
        """Remember how far somebody has got, across restarts; written with the next events."""
        if self._marks.get(name) != value:
            self._marks[name] = self._new_marks[name] = value
            self._wake.set()

    async def page(
        self, nodes: Sequence[str] | None, least: Severity, since: float | None, before: int | None, limit: int
    ) -> list[Numbered]:
        """Events of these nodes (None: all there are), at least this severe, newest first, below ``before``."""
        low = float("-inf") if since is None else since
        high = 2**63 - 1 if before is None else before
        return await self._reader.run(lambda file: file.page(nodes, least, low, high, limit))

    async def follow(self, since: int | None) -> AsyncIterator[Sequence[Numbered]]:
        """Events above ``since`` (None: from now on), until the log stops."""
        if since is not None and since > self.newest:
            raise BadRequest(
                f"the newest event is {self.newest}; nothing can be continued after {since}", where="since"
            )
        return self._follow(self.newest if since is None else since)

    async def _follow(self, seen: int) -> AsyncIterator[Sequence[Numbered]]:
        while self._task is not None:
            if seen + 1 < self._oldest:
                raise Compacted(
                    f"event {seen + 1} is no longer kept; the oldest is {self._oldest}",
                    oldest=self._oldest,
                    hint="list again, then follow from the newest of that list",
                )
            if seen >= self.newest:
                await self._news.wait()
                continue
            batch = self._from_memory(seen)
            if batch is None:
                after = seen
                batch = await self._reader.run(lambda file: file.after(after, _FOLLOW))  # noqa: B023
                if not batch or batch[0][0] != seen + 1:
                    continue  # pruned meanwhile: the bounds say so in a moment
            seen = batch[-1][0]
            yield batch

    def _from_memory(self, seen: int) -> list[Numbered] | None:
        if not self._recent or self._recent[0][0] > seen + 1:
            return None
        skipped = seen + 1 - self._recent[0][0]
        return [self._recent[i] for i in range(skipped, min(skipped + _FOLLOW, len(self._recent)))]

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._waiting or self._new_marks:
                    await self._write_some()
                if self._clock() - self._pruned > self.settings.prune_every:
                    self._pruned = self._clock()
                    await self.prune()
            except Unavailable as error:
                log.warning("events wait", extra={"reason": str(error), "waiting": len(self._waiting)})
                self._wake.set()
                await asyncio.sleep(_RETRY_AFTER)

    async def _write_some(self) -> None:
        events = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        marks, self._new_marks = self._new_marks, {}
        try:
            first = await asyncio.shield(self._writer.run(lambda file: file.add(events, marks)))
        except Unavailable:
            self._waiting.extendleft(reversed(events))
            self._new_marks = marks | self._new_marks
            raise
        if not events:
            return
        self._recent.extend(enumerate(events, first))
        self.newest = first + len(events) - 1
        self._oldest = min(self._oldest, first) if self._oldest <= self.newest else first
        self._news.set()
        self._news = asyncio.Event()

    async def prune(self) -> None:
        """Drop what is too old or too much."""
        keep, before = self.settings.keep, self._clock() - self.settings.keep_for
        self._oldest = await self._writer.run(lambda file: file.prune(keep, before))


class _Worker:
    """The file in a thread, and what becomes of its errors."""

    def __init__(self, path: Path) -> None:
        self._where = path.name
        self._thread = FileThread("events", partial(_open, path))
        self.close = self._thread.close

    async def run(self, work: Callable[[EventFile], _T]) -> _T:
        try:
            return await self._thread.run(work)
        except apsw.Error as error:
            raise Unavailable(f"the event log cannot be used now: {error}", where=self._where) from None


def _open(path: Path) -> EventFile:
    try:
        return EventFile(path)
    except (apsw.NotADBError, apsw.CorruptError) as error:
        # Past events are good to have, new ones must be kept: what cannot be read is put aside, not deleted.
        log.error("the event log is damaged; it is put aside and begun anew", extra={"reason": str(error)})
        path.rename(path.with_name(path.name + "-damaged"))
        for part in ("-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
        return EventFile(path)
