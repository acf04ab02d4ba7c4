"""Takes samples in: into memory at once, into the journal soon, into chunks when a minute is over.

All of it is done by one thread. Readers of the books hold the lock.
"""

from __future__ import annotations

import logging
import math
import threading
import time as real_time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from strata.core.distinct import united
from strata.core.errors import StrataError, Unavailable
from strata.power.series.chunk_store import LEVELS, ChunkStore, Sealed, decode_journal, encode_journal
from strata.power.series.codec import BLOCK, encode_rows, encode_summary
from strata.power.series.downsample import Fold, Matrix
from strata.power.series.open_chunks import SECONDS, OpenChunk, OpenMetric, summed
from strata.power.series.reader import Reader
from strata.power.series.records import METRICS, Metric, Refusals, Samples, Uids

log = logging.getLogger(__name__)

FUTURE = 60.0
"""Seconds by which a sender's clock may be ahead of ours."""
OPEN_AT_MOST = 15
"""Chunks of a metric that are kept in memory while the database is away."""


class Intake:
    """The writing side of a series."""

    def __init__(
        self, open_store: Callable[[], ChunkStore], lateness: float, hold: float, clock: Callable[[], float]
    ) -> None:
        self.lock = threading.Lock()
        self.books = {name: OpenMetric(metric, lateness) for name, metric in METRICS.items()}
        self.trouble = ""
        self._open_store = open_store
        self._lateness = lateness
        self._hold = hold
        self._clock = clock
        self._store: ChunkStore | None = None
        self._unnoted: list[Samples] = []
        self._noted: dict[int, Mapping[str, float]] = {}
        """Of each entry in the journal: the newest time of each metric."""
        self._early = self._lost = 0
        self._touched = real_time.monotonic()

    @property
    def store(self) -> ChunkStore:
        if self._store is None:
            raise Unavailable("the telemetry was not started")
        return self._store

    @property
    def refused(self) -> Refusals:
        books = self.books.values()
        return Refusals(
            late=sum(book.late for book in books),
            early=self._early,
            nonsense=sum(book.nonsense for book in books),
            lost=self._lost,
        )

    @property
    def pending(self) -> bool:
        """Whether anything is in memory that is in no chunk."""
        return any(book.chunks for book in self.books.values())

    def start(self) -> None:
        """Open the store, and take up what was in the journal."""
        store = self._store = self._open_store()
        for name, book in self.books.items():
            book.sealed_until = store.sealed_until(name, store.writer)
        for number, entry in store.journal():
            batch = decode_journal(entry)
            for samples in batch:
                # What is in a chunk already is not late.
                if math.floor(samples.time) >= self.books[samples.metric].sealed_until:
                    self.books[samples.metric].take(samples)
            self._noted[number] = _newest(batch)

    def append(self, batch: Sequence[Samples]) -> None:
        """Take samples into memory; close the chunks that this makes old enough."""
        horizon = self._clock() + FUTURE
        self._touched = real_time.monotonic()
        for samples in batch:
            if samples.time > horizon:
                self._early += len(samples.uids)
            elif len(samples.uids):
                with self.lock:
                    taken = self.books[samples.metric].take(samples)
                if taken is not None:
                    self._unnoted.append(taken)
        for book in self.books.values():
            self._close(book, book.ripe())

    def flush(self) -> None:
        """Make durable what is in memory only; close what nothing more has come for."""
        store = self.store
        if self._unnoted:
            newest = _newest(self._unnoted)
            with store.transaction():
                number = store.note(encode_journal(self._unnoted), max(newest.values()))
            self._noted[number] = newest
            self._unnoted.clear()
            self.trouble = ""
        idle = real_time.monotonic() - self._touched > self._lateness + SECONDS
        for book in self.books.values():
            self._close(book, book.ripe(all_of_them=idle))

    def prune(self, level: int, before: float, rows: bool) -> int:
        """Drop old chunks, or only their samples."""
        with self.store.transaction():
            return self.store.prune(level, before, rows=rows)

    def stop(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def in_trouble(self, error: StrataError) -> None:
        """Say once that the database is away; samples are kept in memory meanwhile."""
        if not self.trouble:
            log.warning("samples are kept in memory: %s", error)
        self.trouble = str(error)

    def _close(self, book: OpenMetric, chunks: Sequence[OpenChunk]) -> None:
        for chunk in chunks:
            done = self._done_with(book, chunk)
            try:
                with self.store.transaction():
                    seal(self.store, book, chunk, self._hold)
                    self.store.strike(done)
            except StrataError as error:
                self.in_trouble(error)
                if len(book.chunks) <= OPEN_AT_MOST:
                    return
                self._lost += int((~np.isnan(chunk.values)).sum())
            else:
                self.trouble = ""
                for number in done:
                    del self._noted[number]
            with self.lock:
                del book.chunks[chunk.start]
                book.sealed_until = chunk.end
            name = book.metric.name
            self._unnoted = [each for each in self._unnoted if each.metric != name or each.time >= chunk.end]

    def _done_with(self, book: OpenMetric, chunk: OpenChunk) -> list[int]:
        """What of the journal is all in chunks, once this one is closed."""
        until = {name: float(each.sealed_until) for name, each in self.books.items()} | {book.metric.name: chunk.end}
        return [
            number for number, newest in self._noted.items() if all(when < until[name] for name, when in newest.items())
        ]


def _newest(batch: Sequence[Samples]) -> dict[str, float]:
    found: dict[str, float] = {}
    for samples in batch:
        found[samples.metric] = max(found.get(samples.metric, 0.0), samples.time)
    return found


def seal(store: ChunkStore, book: OpenMetric, chunk: OpenChunk, hold: float) -> None:
    """Put a minute on the store, and the longer chunks that it completes."""
    order = book.sorted_columns()
    times, spread, values = chunk.rows(order)
    uids = book.uids[order]
    there = ~np.isnan(values).all(axis=0)
    if not there.all():
        uids, values = uids[there], values[:, there]
    if len(uids):
        fold = Fold(book.metric, len(uids), hold)
        for index, time in enumerate(times):
            fold.row(float(time), values[index], float(spread[index]))
        sums, counts = summed(book.metric, values)
        blocks = [values[:, first : first + BLOCK] for first in range(0, len(uids), BLOCK)]
        store.put(
            Sealed(
                metric=book.metric.name,
                level=LEVELS[0],
                start=chunk.start,
                uids=uids,
                times=times,
                spread=spread,
                sums=sums,
                counts=counts,
                rows=[encode_rows(book.metric, block) for block in blocks],
                summaries=_summaries(book.metric, fold.summary, chunk.start),
            )
        )
    for finer, level in pairwise(LEVELS):
        for end in sorted(_completed(book.sealed_until, chunk, level)):
            _sum_up(store, book.metric, finer, level, end, hold)


def _completed(before: int, chunk: OpenChunk, level: int) -> set[int]:
    """The ends of the chunks of ``level`` to which nothing can be added once this minute is closed."""
    ends = {chunk.end} if chunk.end % level == 0 else set()
    # Time may have passed without samples since the last one.
    begun = -(-before // level) * level
    return ends | ({begun} if before < begun <= chunk.start else set())


def _sum_up(store: ChunkStore, metric: Metric, finer: int, level: int, end: int, hold: float) -> None:
    reader = Reader(metric, store, (), hold)
    heads = [head for head in reader.heads(finer, end - level, end) if head.writer == store.writer]
    if not heads:
        return
    rosters = {id(head.uids): head.uids for head in heads}
    uids: Uids = reduce(united, rosters.values())
    fold = Fold(metric, len(uids), hold)
    for head in heads:
        fold.absorb(reader.summary(head, uids))
    none = np.empty(0)
    store.put(
        Sealed(
            metric=metric.name,
            level=level,
            start=end - level,
            uids=uids,
            times=none,
            spread=none,
            sums=none,
            counts=np.empty(0, np.int64),
            rows=(),
            summaries=_summaries(metric, fold.summary, end - level),
        )
    )


def _summaries(metric: Metric, summary: Matrix, origin: int) -> list[bytes]:
    return [
        encode_summary(metric, summary[:, first : first + BLOCK], origin) for first in range(0, summary.shape[1], BLOCK)
    ]
