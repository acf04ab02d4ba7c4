"""Which chunks answer a question, and what they say about the nodes that were asked for.

A *piece* is some time of one writer: rows of samples, or a summary in place of them. The fewest and coarsest summaries
that lie wholly within the asked time are taken; samples are read only at its two ends.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct, united
from strata.core.errors import Compacted
from strata.power.series.chunk_store import LEVELS, ChunkStore, Head
from strata.power.series.codec import BLOCK, decode_rows, decode_summary
from strata.power.series.downsample import Fold, Matrix, blank
from strata.power.series.open_chunks import OpenMetric, summed
from strata.power.series.records import Counts, Floats, Metric, Times, Uids

_Places = dict[int, tuple[npt.NDArray[np.intp] | slice, npt.NDArray[np.intp]]]


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of some nodes."""

    times: Times
    spread: Times
    values: Floats


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over some nodes; ``nodes`` are those that are in it at any time, all of which may be in every row."""

    times: Times
    sums: Times
    counts: Counts
    nodes: Uids


class OpenPart:
    """What one writer has of a metric that is in no chunk yet: everything from ``since`` on. A chunk that is closed
    after this was made is still there; nothing changes in it any more."""

    def __init__(self, writer: str, book: OpenMetric, lock: threading.Lock, start: float, end: float) -> None:
        self.writer = writer
        self.since = min(book.chunks, default=math.inf)
        self._book = book
        self._lock = lock
        self._chunks = [chunk for at, chunk in sorted(book.chunks.items()) if at < end and chunk.end > start]

    @property
    def uids(self) -> Uids:
        """All nodes that may be in it, sorted."""
        with self._lock:
            return self._book.uids[self._book.sorted_columns()]

    def newest(self, uids: Uids) -> tuple[Times, Times]:
        """Time and value of the newest sample of each node."""
        with self._lock:
            return self._book.newest_of(uids)

    def rows(self, uids: Uids, start: float, end: float) -> Iterable[Rows]:
        """The samples of these nodes, chunk by chunk."""
        for chunk in self._chunks:
            with self._lock:
                places = self._book.places(uids)
                seen = places >= 0
                times, spread, found = chunk.rows(places[seen], start, end)
            values = found
            if not seen.all():
                values = np.full((len(times), len(uids)), np.nan, found.dtype)
                values[:, seen] = found
            if len(times):
                yield Rows(times=times, spread=spread, values=values)

    def sums(self, start: float, end: float) -> Iterable[Sums]:
        """Sums over all nodes, chunk by chunk."""
        for chunk in self._chunks:
            with self._lock:
                times, sums, counts = chunk.sums(self._book.metric, start, end)
            yield Sums(times=times, sums=sums, counts=counts, nodes=self.uids)


class Reader:
    """Answers from one moment of the database and of what is in memory."""

    def __init__(self, metric: Metric, store: ChunkStore, open_parts: Sequence[OpenPart], hold: float) -> None:
        self.metric = metric
        self._store = store
        self.open_parts = open_parts
        self.hold = hold
        self._since = {part.writer: part.since for part in open_parts}
        self._loaded: dict[int, tuple[float, float, list[Head], list[int]]] = {}
        self._aligned: dict[tuple[int, int], _Places] = {}
        self._kept: list[Uids] = []

    def heads(self, level: int, start: float, end: float) -> list[Head]:
        """Chunks that share time with ``start`` to ``end``, without those that are in memory too."""
        low, high, found, starts = self._loaded.get(level, (np.inf, -np.inf, [], []))
        if start < low or end > high:
            low, high = min(start, low), max(end, high)
            found = [
                head
                for head in self._store.heads(self.metric.name, level, low, high)
                if head.end <= self._since.get(head.writer, np.inf)
            ]
            starts = [head.start for head in found]
            self._loaded[level] = low, high, found, starts
        return found[bisect.bisect_right(starts, start - level) : bisect.bisect_left(starts, end)]

    def uids(self, start: float, end: float) -> Uids:
        """All nodes that have samples in that time or close to it."""
        rosters = {id(head.uids): head.uids for level in LEVELS for head in self.heads(level, start, end)}
        parts = [*rosters.values(), *(part.uids for part in self.open_parts)]
        return reduce(united, parts, np.empty(0, np.int64))

    def fold(self, uids: Uids, start: float, end: float, *, bridged: bool = True) -> Fold:
        """All that is known of these nodes from ``start`` to ``end``; ``bridged`` to the samples on either side. What
        is not bridged must not cut through a chunk of which nothing finer is kept."""
        fold = Fold(self.metric, len(uids), self.hold, start, end)
        margin = self.hold if bridged else 0.0
        early, late = start - margin, end + margin
        used: dict[str, list[Head]] = {}
        pieces: list[tuple[float, Head | Rows]] = []
        for level in reversed(LEVELS):
            for head in self.heads(level, early, late):
                if any(other.start <= head.start < other.end for other in used.get(head.writer, ())):
                    continue
                inside = start <= head.start and head.end <= end
                if not inside and self._is_finer(head, early, late):
                    continue
                if not inside and not bridged:
                    raise _compacted(head.end, head.level)
                used.setdefault(head.writer, []).append(head)
                pieces.append((float(head.times[0]) if len(head.times) else float(head.start), head))
        pieces.extend((float(rows.times[0]), rows) for rows in self._open_rows(uids, early, late))
        for _, piece in sorted(pieces, key=lambda piece: piece[0]):
            if isinstance(piece, Rows):
                _fold_rows(fold, piece, early, late)
            else:
                self._fold_head(fold, piece, uids, early, late)
        return fold

    def rows(self, uids: Uids, start: float, end: float) -> Iterator[Rows]:
        """All samples from ``start`` to before ``end``, chunk by chunk; refused where only summaries are left."""
        for level in LEVELS[1:]:
            for head in self.heads(level, start, end):
                if not self._is_finer(head, start, end):
                    raise _compacted(head.end, level)
        for head in self.heads(LEVELS[0], start, end):
            rows = self._rows_of(head, uids)
            if rows is None:
                raise _compacted(head.end, head.level)
            rows = _cut(rows, start, end)
            if len(rows.times):
                yield rows
        yield from self._open_rows(uids, start, end)

    def samples(self, uids: Uids, start: float, end: float) -> tuple[Times, Times, Floats]:
        """One row for each second, out of what several chunks and writers have of it: times, their spread, values."""
        parts, nodes = list(self.rows(uids, start, end)), len(uids)
        kind = np.float64 if self.metric.counter else np.float32
        if not parts:
            return np.empty(0), np.empty(0), np.empty((0, nodes), kind)
        stamps = np.concatenate([part.times for part in parts])
        seconds, index = np.unique(np.floor(stamps), return_inverse=True)
        if len(seconds) == len(stamps) and (np.diff(stamps) > 0).all():
            spread = np.concatenate([part.spread for part in parts])
            return stamps, spread, np.concatenate([part.values for part in parts])
        times, latest = np.full(len(seconds), np.inf), np.full(len(seconds), -np.inf)
        np.minimum.at(times, index, stamps)
        np.maximum.at(latest, index, stamps + np.concatenate([part.spread for part in parts]))
        values = np.full((len(seconds), nodes), np.nan, kind)
        at = 0
        for part in parts:
            for row in part.values:
                np.copyto(values[index[at]], row, where=~np.isnan(row))
                at += 1
        return times, latest - times, values

    def sums(self, uids: Uids | None, start: float, end: float) -> list[Sums]:
        """Sums over these nodes from ``start`` to before ``end``; those over all nodes are there already."""
        found: list[Sums] = []
        for head in self.heads(LEVELS[0], start, end):
            if uids is None or self._has_all(head, uids):
                part = slice(*np.searchsorted(head.times, [start, end]))
                sums, counts = head.sums[part], head.counts[part]
                found.append(Sums(times=head.times[part], sums=sums, counts=counts, nodes=head.uids))
            else:
                rows = self._rows_of(head, uids)
                if rows is None:
                    raise _compacted(head.end, head.level)
                found.append(self._sum(_cut(rows, start, end), uids))
        for open_part in self.open_parts:
            if uids is None or np.isin(open_part.uids, uids, assume_unique=True).all():
                found.extend(open_part.sums(start, end))
            else:
                found.extend(self._sum(rows, uids) for rows in open_part.rows(uids, start, end))
        return [sums for sums in found if len(sums.times)]

    def _sum(self, rows: Rows, uids: Uids) -> Sums:
        sums, counts = summed(self.metric, rows.values)
        return Sums(times=rows.times, sums=sums, counts=counts, nodes=uids)

    def _has_all(self, head: Head, uids: Uids) -> bool:
        """Whether all nodes of a chunk are among these."""
        return sum(len(theirs) for _, theirs in self._align(head, uids).values()) == len(head.uids)

    def summary(self, head: Head, uids: Uids) -> Matrix:
        """What a chunk says of these nodes, all in all."""
        blocks = self._align(head, uids)
        found = blank(len(uids))
        blobs = self._store.summaries(head.id, list(blocks)) if blocks else {}
        for block, (mine, theirs) in blocks.items():
            found[:, mine] = decode_summary(self.metric, blobs[block], head.start, theirs)
        return found

    def _open_rows(self, uids: Uids, start: float, end: float) -> Iterable[Rows]:
        for part in self.open_parts:
            yield from part.rows(uids, start, end)

    def _is_finer(self, head: Head, early: float, late: float) -> bool:
        """Whether the time of a chunk is also there in finer ones (which go first when they get old)."""
        low, high = max(head.start, early), min(head.end, late)
        finer = [level for level in LEVELS if level < head.level]
        return any(other.writer == head.writer for level in finer for other in self.heads(level, low, high))

    def _fold_head(self, fold: Fold, head: Head, uids: Uids, early: float, late: float) -> None:
        if fold.start <= head.start and head.end <= fold.end:
            fold.absorb(self.summary(head, uids))
            return
        if head.level == LEVELS[0] and (head.end <= fold.start or head.start >= fold.end):
            fold.border(self.summary(head, uids), before=head.end <= fold.start)
            return
        rows = self._rows_of(head, uids) if head.level == LEVELS[0] else None
        if rows is None:
            fold.absorb_part(self.summary(head, uids))
        else:
            _fold_rows(fold, rows, early, late)

    def _rows_of(self, head: Head, uids: Uids) -> Rows | None:
        blocks = self._align(head, uids)
        values = np.full((len(head.times), len(uids)), np.nan, np.float64 if self.metric.counter else np.float32)
        blobs = self._store.rows(head.id, list(blocks) or [0])
        if not blobs:
            return None
        for block, (mine, theirs) in blocks.items():
            values[:, mine] = decode_rows(self.metric, blobs[block], theirs)
        return Rows(times=head.times, spread=head.spread, values=values)

    def _align(self, head: Head, uids: Uids) -> _Places:
        """Where the nodes that both have are: for each block, in the question and in the block."""
        key = (id(head.uids), id(uids))
        if key not in self._aligned:
            # While these are here, no other array has their identity.
            self._kept += [head.uids, uids]
            # Both ascend: to look each up takes a tenth of the time that a sort of both would.
            theirs = np.minimum(np.searchsorted(head.uids, uids), len(head.uids) - 1)
            mine = np.flatnonzero(head.uids[theirs] == uids) if len(head.uids) else np.empty(0, np.intp)
            self._aligned[key] = _by_block(mine, theirs[mine])
        return self._aligned[key]


def _fold_rows(fold: Fold, rows: Rows, early: float, late: float) -> None:
    for index in np.flatnonzero((rows.times >= early) & (rows.times < late)):
        fold.row(float(rows.times[index]), rows.values[index], float(rows.spread[index]))


def _cut(rows: Rows, start: float, end: float) -> Rows:
    part = slice(*np.searchsorted(rows.times, [start, end]))
    return Rows(times=rows.times[part], spread=rows.spread[part], values=rows.values[part])


def _compacted(end: int, level: int) -> Compacted:
    when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(end))
    return Compacted(
        f"of the time before {when}, only summaries of {level} s are kept",
        where="start",
        hint=f"ask for {when} or later, or with a step of {max(level, LEVELS[0])} s or more",
    )


def _by_block(mine: npt.NDArray[np.intp], theirs: npt.NDArray[np.intp]) -> _Places:
    found: _Places = {}
    block_of = theirs // BLOCK
    for block in distinct(block_of):
        first, last = np.searchsorted(block_of, [block, block + 1])
        places = mine[first:last]
        # Nodes that were asked for side by side lie so in the answer, which is quicker to fill then.
        whole = int(places[-1]) - int(places[0]) == len(places) - 1
        found[int(block)] = (
            slice(int(places[0]), int(places[-1]) + 1) if whole else places,
            theirs[first:last] - block * BLOCK,
        )
    return found
