"""The shelf in SQL, as both databases understand it. What differs between them is in their own modules."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from strata.power.series import Uids
from strata.power.series_shelf import Head, Sealed

FORMAT = "1"

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS roster (id {serial}, digest {bytes} NOT NULL UNIQUE, uids {bytes} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS chunk (id {serial}, metric TEXT NOT NULL, level INTEGER NOT NULL,"
    " start BIGINT NOT NULL, writer TEXT NOT NULL, roster BIGINT NOT NULL, lines {bytes} NOT NULL,"
    " sampled INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS chunk_at ON chunk (metric, level, start, writer)",
    "CREATE TABLE IF NOT EXISTS sample (chunk BIGINT NOT NULL, block INTEGER NOT NULL, data {bytes} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS sample_at ON sample (chunk, block)",
    "CREATE TABLE IF NOT EXISTS summary (chunk BIGINT NOT NULL, block INTEGER NOT NULL, data {bytes} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS summary_at ON summary (chunk, block)",
    "CREATE TABLE IF NOT EXISTS journal (id {serial}, writer TEXT NOT NULL, newest DOUBLE PRECISION NOT NULL,"
    " data {bytes} NOT NULL)",
)


_PRUNED_AT_ONCE = 8
"""Chunks that go in one transaction: who writes meanwhile waits."""


class SqlShelf(abc.ABC):
    """A shelf over a connection; a subclass says how a statement is run. Statements mark values with ``?``."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._rosters: dict[int, Uids] = {}
        self._roster: tuple[int, bytes] = (0, b"")

    @abc.abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def put(self, chunk: Sealed) -> None:
        lines = np.concatenate([chunk.times, chunk.spread, chunk.sums, chunk.counts.astype(np.float64)]).tobytes()
        values = (chunk.metric, chunk.level, chunk.start, self.writer, self._roster_of(chunk.uids), lines)
        ((number,),) = self._run(
            "INSERT INTO chunk (metric, level, start, writer, roster, lines, sampled) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " RETURNING id",
            (*values, int(bool(chunk.rows))),
        )
        for table, blocks in (("sample", chunk.rows), ("summary", chunk.summaries)):
            for block, data in enumerate(blocks):
                self._run(f"INSERT INTO {table} (chunk, block, data) VALUES (?, ?, ?)", (number, block, data))

    def heads(self, metric: str, level: int, start: float, end: float) -> list[Head]:
        found = self._run(
            "SELECT id, start, writer, roster, lines FROM chunk"
            " WHERE metric = ? AND level = ? AND start > ? AND start < ? ORDER BY start, writer",
            (metric, level, start - level, end),
        )
        return [
            self._head(number, level, at, writer, roster, bytes(lines)) for number, at, writer, roster, lines in found
        ]

    def rows(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        return self._blocks("sample", chunk, blocks)

    def summaries(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        return self._blocks("summary", chunk, blocks)

    def sealed_until(self, metric: str, writer: str) -> int:
        ((last,),) = self._run(
            "SELECT max(start + level) FROM chunk WHERE metric = ? AND level = 60 AND writer = ?", (metric, writer)
        )
        return int(last or 0)

    def note(self, entry: bytes, newest: float) -> int:
        ((number,),) = self._run(
            "INSERT INTO journal (writer, newest, data) VALUES (?, ?, ?) RETURNING id", (self.writer, newest, entry)
        )
        return int(number)

    def strike(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._run("DELETE FROM journal WHERE id = ?", (number,))

    def journal(self) -> list[tuple[int, bytes]]:
        found = self._run("SELECT id, data FROM journal WHERE writer = ? ORDER BY id", (self.writer,))
        return [(number, bytes(data)) for number, data in found]

    def others(self, since: float) -> list[tuple[str, bytes]]:
        found = self._run(
            "SELECT writer, data FROM journal WHERE writer <> ? AND newest >= ? ORDER BY id", (self.writer, since)
        )
        return [(writer, bytes(data)) for writer, data in found]

    def prune(self, level: int, before: float, *, rows: bool) -> int:
        doomed = self._run(
            "SELECT id FROM chunk WHERE level = ? AND start <= ?" + (" AND sampled = 1" if rows else "") + " LIMIT ?",
            (level, before - level, _PRUNED_AT_ONCE),
        )
        for (number,) in doomed:
            self._run("DELETE FROM sample WHERE chunk = ?", (number,))
            if rows:
                self._run("UPDATE chunk SET sampled = 0 WHERE id = ?", (number,))
            else:
                self._run("DELETE FROM summary WHERE chunk = ?", (number,))
                self._run("DELETE FROM chunk WHERE id = ?", (number,))
        if not rows and doomed:
            self._run("DELETE FROM roster WHERE id NOT IN (SELECT roster FROM chunk)")
            self._roster = (0, b"")
        return len(doomed)

    def _blocks(self, table: str, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        marks = ", ".join("?" * len(blocks))
        found = self._run(f"SELECT block, data FROM {table} WHERE chunk = ? AND block IN ({marks})", (chunk, *blocks))
        return dict(found)

    def _head(self, number: int, level: int, start: int, writer: str, roster: int, lines: bytes) -> Head:
        times, spread, sums, counts = np.frombuffer(lines).reshape(4, -1)
        return Head(
            id=number,
            level=level,
            start=start,
            writer=writer,
            uids=self._uids_of(roster),
            times=times,
            spread=spread,
            sums=sums,
            counts=counts.astype(np.int64),
        )

    def _uids_of(self, roster: int) -> Uids:
        if roster not in self._rosters:
            ((uids,),) = self._run("SELECT uids FROM roster WHERE id = ?", (roster,))
            if len(self._rosters) > 64:
                self._rosters.clear()
            self._rosters[roster] = np.frombuffer(uids, np.int64)
        return self._rosters[roster]

    def _roster_of(self, uids: Uids) -> int:
        """Nodes of a chunk are mostly those of the one before: they are written once."""
        data = uids.tobytes()
        digest = hashlib.sha256(data).digest()
        if self._roster[1] != digest:
            self._run("INSERT INTO roster (digest, uids) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, data))
            ((number,),) = self._run("SELECT id FROM roster WHERE digest = ?", (digest,))
            self._roster = (number, digest)
        return self._roster[0]
