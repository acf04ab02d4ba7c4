"""The SQLite file behind the event log: blocking, one connection per instance. ``events_log`` calls it from threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from strata.hardware.bmc import Severity
from strata.hardware.events.event import HardwareEvent
from strata.hardware.events.words import RANK
from strata.store.side_file import connect

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
_COLUMNS = "seq, time, severity, source, key, node, bmc, message, message_id, fields"
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
                "INSERT INTO events (time, severity, source, key, node, bmc, message, message_id, fields)"
                " VALUES (?,?,?,?,?,?,?,?,?)",
                map(_row, events),
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


def _row(event: HardwareEvent) -> tuple[Any, ...]:
    fields = _encode(event.fields) if event.fields else _NONE
    e = event
    return e.time, RANK[e.severity], e.source, e.key, e.node, e.bmc, e.message, e.message_id, fields


def _event(row: tuple[Any, ...]) -> Numbered:
    seq, time, severity, source, key, node, bmc, message, message_id, fields = row
    event = HardwareEvent(
        time=time,
        severity=_SEVERITIES[severity],
        source=source,
        key=key,
        node=node,
        bmc=bmc,
        message=message,
        message_id=message_id,
        fields={} if fields == _NONE else _fields(fields),
    )
    return seq, event
