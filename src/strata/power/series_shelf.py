"""What the telemetry needs of a database: to keep chunks, and a journal of what is not in a chunk yet."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from strata.power.series import Counts, Floats, Samples, Times, Uids

LEVELS = (60, 600, 3600)
"""Seconds that a chunk of each level spans. Only those of the first have samples, all have summaries."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk without its contents."""

    id: int
    level: int
    start: int
    writer: str
    uids: Uids
    times: Times
    spread: Times
    sums: Times
    """Over all nodes, for each row; of chunks without samples none of these four is there."""
    counts: Counts

    @property
    def end(self) -> int:
        """The first second after it."""
        return self.start + self.level


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk to be kept: each block of nodes has its samples (on the first level) and its summary."""

    metric: str
    level: int
    start: int
    uids: Uids
    times: Times
    spread: Times
    sums: Times
    counts: Counts
    rows: Sequence[bytes]
    summaries: Sequence[bytes]


class Shelf(Protocol):
    """One connection; used by one thread at a time. Raises ``Unavailable`` when the database cannot be used now."""

    writer: str
    """The name under which it writes. One process at a time has it."""

    def transaction(self) -> contextlib.AbstractContextManager[object]:
        """What is written within is written wholly or not at all, and durable at the end; what is read is of one
        moment."""
        ...

    def put(self, chunk: Sealed) -> None:
        """Keep a chunk."""
        ...

    def heads(self, metric: str, level: int, start: float, end: float) -> list[Head]:
        """The chunks that share any time with ``start`` to ``end``, oldest first."""
        ...

    def rows(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        """The samples in these blocks; empty when they are no longer kept."""
        ...

    def summaries(self, chunk: int, blocks: Sequence[int]) -> dict[int, bytes]:
        """The summaries in these blocks."""
        ...

    def sealed_until(self, metric: str, writer: str) -> int:
        """The end of this writer's last chunk, or 0."""
        ...

    def note(self, entry: bytes, newest: float) -> int:
        """Add to the journal; its number. ``newest`` is the time of the newest sample in it."""
        ...

    def strike(self, numbers: Sequence[int]) -> None:
        """Drop from the journal what has come into chunks."""
        ...

    def journal(self) -> list[tuple[int, bytes]]:
        """This writer's journal, and those of writers that are no more: they are this one's from now on."""
        ...

    def others(self, since: float) -> list[tuple[str, bytes]]:
        """Each other writer's journal, save for what is all older than ``since``."""
        ...

    def prune(self, level: int, before: float, *, rows: bool) -> int:
        """Drop some chunks that end before, or only their samples; how many, until it is none."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    metric: str
    time: float
    uids: bytes
    """Empty: the same as of the entry before."""
    values: bytes
    wide: bool


def encode_journal(batch: Sequence[Samples]) -> bytes:
    """Samples as they came."""
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
    """The samples again."""
    found: list[Samples] = []
    uids: Uids = np.empty(0, np.int64)
    for entry in msgspec.msgpack.decode(blob, type=list[_Entry]):
        if entry.uids:
            uids = np.cumsum(np.frombuffer(zlib.decompress(entry.uids), np.int64))
        values: Floats = np.frombuffer(entry.values, np.float64 if entry.wide else np.float32)
        found.append(Samples(metric=entry.metric, time=entry.time, uids=uids, values=values))
    return found
