"""Takes samples in: into memory at once, into the journal soon, into chunks when a minute is over.

All of it is done by one thread. Readers of the books hold the lock.
"""

from __future__ import annotations

import logging
import math
import threading
import time as real_time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strata.core.errors import StrataError, Unavailable
from strata.power.series import METRICS, Refusals, Samples
from strata.power.series_open import SECONDS, Book, OpenChunk
from strata.power.series_seal import seal
from strata.power.series_shelf import Shelf, decode_journal, encode_journal

log = logging.getLogger(__name__)

FUTURE = 60.0
"""Seconds by which a sender's clock may be ahead of ours."""
OPEN_AT_MOST = 15
"""Chunks of a metric that are kept in memory while the database is away."""


class Intake:
    """The writing side of a series."""

    def __init__(
        self, open_shelf: Callable[[], Shelf], lateness: float, hold: float, clock: Callable[[], float]
    ) -> None:
        self.lock = threading.Lock()
        self.books = {name: Book(metric, lateness) for name, metric in METRICS.items()}
        self.trouble = ""
        self._open_shelf = open_shelf
        self._lateness = lateness
        self._hold = hold
        self._clock = clock
        self._shelf: Shelf | None = None
        self._unnoted: list[Samples] = []
        self._noted: dict[int, Mapping[str, float]] = {}
        """Of each entry in the journal: the newest time of each metric."""
        self._early = self._lost = 0
        self._touched = real_time.monotonic()

    @property
    def shelf(self) -> Shelf:
        """The one that writes."""
        if self._shelf is None:
            raise Unavailable("the telemetry was not started")
        return self._shelf

    @property
    def refused(self) -> Refusals:
        """What was not taken."""
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
        """Open the shelf, and take up what was in the journal."""
        shelf = self._shelf = self._open_shelf()
        for name, book in self.books.items():
            book.sealed_until = shelf.sealed_until(name, shelf.writer)
        for number, entry in shelf.journal():
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
        shelf = self.shelf
        if self._unnoted:
            newest = _newest(self._unnoted)
            with shelf.transaction():
                number = shelf.note(encode_journal(self._unnoted), max(newest.values()))
            self._noted[number] = newest
            self._unnoted.clear()
            self.trouble = ""
        idle = real_time.monotonic() - self._touched > self._lateness + SECONDS
        for book in self.books.values():
            self._close(book, book.ripe(all_of_them=idle))

    def prune(self, level: int, before: float, rows: bool) -> int:
        """Drop old chunks, or only their samples."""
        with self.shelf.transaction():
            return self.shelf.prune(level, before, rows=rows)

    def stop(self) -> None:
        """Let go of the shelf."""
        if self._shelf is not None:
            self._shelf.close()
            self._shelf = None

    def in_trouble(self, error: StrataError) -> None:
        """Say once that the database is away; samples are kept in memory meanwhile."""
        if not self.trouble:
            log.warning("samples are kept in memory: %s", error)
        self.trouble = str(error)

    def _close(self, book: Book, chunks: Sequence[OpenChunk]) -> None:
        for chunk in chunks:
            done = self._done_with(book, chunk)
            try:
                with self.shelf.transaction():
                    seal(self.shelf, book, chunk, self._hold)
                    self.shelf.strike(done)
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

    def _done_with(self, book: Book, chunk: OpenChunk) -> list[int]:
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
