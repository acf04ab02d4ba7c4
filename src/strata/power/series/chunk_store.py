"""What the telemetry needs of a database: to keep chunks, and a journal of what is not in a chunk yet."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from strata.power.series.records import Counts, Floats, Samples, Times, Uids

LEVELS = (60, 600, 3600)
"""Seconds that a chunk of each level spans. Only those of the first have samples, all have summaries."""


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    level: int
    start: int
    uids: Uids
    times: Times
    spread: Times
    sums: Times
    """Over all nodes, for each row; of chunks without samples none of these four is there."""
    counts: Counts


class Head(_Chunk, frozen=True, kw_only=True):
    """A chunk without its contents."""

    id: int
    writer: str

    @property
    def end(self) -> int:
        """The first second after it."""
        return self.start + self.level


class Sealed(_Chunk, frozen=True, kw_only=True):
    """A chunk to be kept: each block of nodes has its samples (on the first level) and its summary."""

    metric: str
    rows: Sequence[bytes]
    summaries: Sequence[bytes]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    metric: str
    time: float
    uids: bytes
    """Empty: the same as of the entry before."""
    values: bytes
    wide: bool


def encode_journal(batch: Sequence[Samples]) -> bytes:
    entries: list[_Entry] = []
    last: Uids | None = None
    for samples in batch:
        same = last is not None and (samples.uids is last or np.array_equal(samples.uids, last))
        last = samples.uids
        uids = b"" if same else zlib.compress(np.diff(samples.uids.astype(np.int64), prepend=0).tobytes(), 1)
        wide = samples.values.dtype == np.float64
        entries.append(_Entry(samples.metric, samples.time, uids, samples.values.tobytes(), wide))
    return msgspec.msgpack.encode(entries)


def decode_journal(blob: bytes) -> list[Samples]:
    found: list[Samples] = []
    uids: Uids = np.empty(0, np.int64)
    for entry in msgspec.msgpack.decode(blob, type=list[_Entry]):
        if entry.uids:
            uids = np.cumsum(np.frombuffer(zlib.decompress(entry.uids), np.int64))
        values: Floats = np.frombuffer(entry.values, np.float64 if entry.wide else np.float32)
        found.append(Samples(metric=entry.metric, time=entry.time, uids=uids, values=values))
    return found


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


class ChunkStore(abc.ABC):
    """One connection to the database, used by one thread at a time. Raises ``Unavailable`` when it cannot be used now.
    A subclass says how a statement is run. Statements mark values with ``?``."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        """The name under which it writes. One process at a time has it."""
        self._rosters: dict[int, Uids] = {}
        self._roster: tuple[int, bytes] = (0, b"")

    @abc.abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[object]:
        """What is written within is written wholly or not at all, and durable at the end; what is read is of one
        moment."""

    @abc.abstractmethod
    def close(self) -> None: ...

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
        """The chunks that share any time with ``start`` to ``end``, oldest first."""
        found = self._run(
            "SELECT id, start, writer, roster, lines FROM chunk"
            " WHERE metric = ? AND level = ? AND start > ? AND start < ? ORDER BY start, writer",
            (metric, level, start - level, end),
        )
        return [
            self._head(number, level, at, writer, roster, bytes(lines)) for number, at, writer, roster, lines in found
        ]

    def rows(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        """The samples in these blocks; empty when they are no longer kept."""
        return self._blocks("sample", chunk, blocks)

    def summaries(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        return self._blocks("summary", chunk, blocks)

    def sealed_until(self, metric: str, writer: str) -> int:
        """The end of this writer's last chunk, or 0."""
        ((last,),) = self._run(
            "SELECT max(start + level) FROM chunk WHERE metric = ? AND level = 60 AND writer = ?", (metric, writer)
        )
        return int(last or 0)

    def note(self, entry: bytes, newest: float) -> int:
        """Add to the journal; its number. ``newest`` is the time of the newest sample in it."""
        ((number,),) = self._run(
            "INSERT INTO journal (writer, newest, data) VALUES (?, ?, ?) RETURNING id", (self.writer, newest, entry)
        )
        return int(number)

    def strike(self, numbers: Sequence[int]) -> None:
        """Drop from the journal what has come into chunks."""
        for number in numbers:
            self._run("DELETE FROM journal WHERE id = ?", (number,))

    def journal(self) -> list[tuple[int, bytes]]:
        """This writer's journal, and those of writers that are no more: they are this one's from now on."""
        found = self._run("SELECT id, data FROM journal WHERE writer = ? ORDER BY id", (self.writer,))
        return [(number, bytes(data)) for number, data in found]

    def others(self, since: float) -> list[tuple[str, bytes]]:
        """Each other writer's journal, save for what is all older than ``since``."""
        found = self._run(
            "SELECT writer, data FROM journal WHERE writer <> ? AND newest >= ? ORDER BY id", (self.writer, since)
        )
        return [(writer, bytes(data)) for writer, data in found]

    def prune(self, level: int, before: float, *, rows: bool) -> int:
        """Drop some chunks that end before, or only their samples; how many, until it is none."""
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
