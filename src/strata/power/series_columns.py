"""The telemetry: newest samples in memory and in a journal, older ones in chunks of a minute, summaries beyond that.

One thread writes, others answer questions, each with a connection of its own. A reader looks at what is in memory first
and at the database then, so that a chunk which moves from one to the other meanwhile is seen.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time as real_time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from strata.core.errors import BadRequest, Compacted, StrataError, Unavailable
from strata.power import series_query as query
from strata.power.series import (
    METRICS,
    Counts,
    Energy,
    GroupTotals,
    Latest,
    Metric,
    Refusals,
    Samples,
    Total,
    Uids,
    Window,
    metric_named,
)
from strata.power.series_intake import Intake
from strata.power.series_open import Book
from strata.power.series_pieces import OpenPart, Pieces
from strata.power.series_shelf import LEVELS, Shelf, decode_journal
from strata.power.series_sqlite import SqliteShelf

_T = TypeVar("_T")

READERS = 2


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds samples and summaries are kept. Defaults: two days, a month, a year, ten years."""

    samples: float = 2 * 86400.0
    minutes: float = 31 * 86400.0
    ten_minutes: float = 366 * 86400.0
    hours: float = 10 * 366 * 86400.0


class ColumnSeries:
    """A ``Series`` over shelves that ``open_shelf`` opens (with True: the one that writes)."""

    def __init__(
        self,
        open_shelf: Callable[[bool], Shelf],
        *,
        flush_every: float = 5.0,
        lateness: float = 60.0,
        hold: float = 90.0,
        keep: Keep | None = None,
        clock: Callable[[], float] = real_time.time,
    ) -> None:
        """``hold``: how long a gauge is trusted between two samples; some more than twice the slowest source's pace."""
        self._open_shelf = open_shelf
        self._flush_every = flush_every
        self._hold = hold
        self._keep = keep or Keep()
        self._clock = clock
        self._intake = Intake(lambda: open_shelf(True), lateness, hold, clock)
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="telemetry-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="telemetry-read")
        self._idle: list[Shelf] = []
        self._started = self._closed = False

    @classmethod
    def in_file(cls, path: Path, **options: object) -> ColumnSeries:
        """In the file ``path``; options as of the class."""
        return cls(lambda writes: SqliteShelf(path, writes=writes), **options)  # type: ignore[arg-type]

    @classmethod
    def in_postgres(cls, address: str, writer: str, **options: object) -> ColumnSeries:
        """In a site's PostgreSQL, written to under the name ``writer`` (each controller has its own)."""
        from strata.power.series_postgres import PostgresShelf

        return cls(lambda writes: PostgresShelf(address, writer, writes=writes), **options)  # type: ignore[arg-type]

    async def start(self) -> None:
        """Open it, and take up what was in the journal."""
        await self._write(self._intake.start)
        self._started = True

    @property
    def refused(self) -> Refusals:
        """What was not taken."""
        return self._intake.refused

    @property
    def trouble(self) -> str:
        """Why samples cannot be made durable now; empty when they can."""
        return self._intake.trouble

    async def append(self, batch: Sequence[Samples]) -> None:
        """See ``Series``."""
        for samples in batch:
            _check(samples)
        await self._write(self._intake.append, batch)
        self._arm()

    async def flush(self) -> None:
        """See ``Series``."""
        await self._write(self._intake.flush)

    async def window(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Window:
        """See ``Series``."""
        query.check_window(start, end, step)
        asked = _sorted(uids)

        def ask(pieces: Pieces) -> Window:
            return query.window(pieces, asked, start, end, step)

        return await self._ask((metric_named(metric),), start, end, ask)

    async def latest(self, metric: str, uids: Uids | None, within: float) -> Latest:
        """See ``Series``."""
        asked, since = _sorted(uids), self._clock() - within

        def ask(pieces: Pieces) -> Latest:
            return query.latest(pieces, asked, since)

        return await self._ask((metric_named(metric),), since, math.inf, ask)

    async def energy(self, uids: Uids | None, start: float, end: float) -> Energy:
        """See ``Series``."""
        query.check_window(start, end, 0)
        asked = _sorted(uids)

        def ask(counters: Pieces, powers: Pieces) -> Energy:
            return query.energy(counters, powers, asked, start, end)

        return await self._ask((METRICS["energy"], METRICS["power"]), start, end, ask)

    async def total(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Total:
        """See ``Series``."""
        query.check_window(start, end, step)
        asked = _sorted(uids)

        def ask(pieces: Pieces) -> Total:
            return query.total(pieces, asked, start, end, step)

        return await self._ask((metric_named(metric),), start, end, ask)

    async def totals(self, metric: str, uids: Uids, groups: Counts, start: float, end: float) -> GroupTotals:
        """See ``Series``."""
        query.check_window(start, end, 0)
        asked = _sorted(uids)
        assert asked is not None
        if len(groups) != len(uids):
            raise BadRequest(f"{len(uids)} uids, but {len(groups)} groups", where="groups")

        def ask(pieces: Pieces) -> GroupTotals:
            return query.totals(pieces, asked, groups, start, end)

        return await self._ask((metric_named(metric),), start, end, ask)

    async def prune(self, now: float) -> int:
        """See ``Series``."""
        keep = self._keep
        gone = 0
        for level, age, rows in (
            (LEVELS[0], keep.samples, True), (LEVELS[0], keep.minutes, False),
            (LEVELS[1], keep.ten_minutes, False), (LEVELS[2], keep.hours, False),
        ):  # fmt: skip
            # Whole hours: what a coarse chunk stands for is there in full, or not at all.
            before = (now - age) // LEVELS[-1] * LEVELS[-1]
            while some := await self._write(self._intake.prune, level, before, rows):
                gone += some
        return gone

    async def close(self) -> None:
        """See ``Series``."""
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await self._flushing
        try:
            if self._started:
                await self._write(self._intake.flush)
        finally:
            self._closed = True
            await asyncio.to_thread(self._shut)

    # The event loop's side.

    async def _write(self, work: Callable[..., _T], *arguments: object) -> _T:
        if self._closed:
            raise Unavailable("the telemetry is closed")
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)

    async def _ask(self, metrics: Sequence[Metric], start: float, end: float, work: Callable[..., _T]) -> _T:
        if self._closed:
            raise Unavailable("the telemetry is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._ask_now, metrics, start, end, work)

    def _arm(self) -> None:
        """See to it that what is in memory becomes durable in time, even if nothing more comes."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._flush_every, self._due)

    def _due(self) -> None:
        self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self._write(self._intake.flush)
        except StrataError as error:
            self._intake.in_trouble(error)
        self._timer = None
        if self._intake.pending:
            self._arm()

    def _shut(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        self._intake.stop()
        for shelf in self._idle:
            shelf.close()

    # The readers' threads.

    def _ask_now(self, metrics: Sequence[Metric], start: float, end: float, work: Callable[..., _T]) -> _T:
        early, late = start - self._hold, end + self._hold
        try:
            shelf = self._idle.pop()
        except IndexError:
            shelf = self._open_shelf(False)
        try:
            # Memory first, the database then: see above.
            books, lock = self._intake.books, self._intake.lock
            with lock:
                mine = [OpenPart(shelf.writer, books[metric.name], lock, early, late) for metric in metrics]
            with shelf.transaction():
                others = _others(shelf, metrics, early, late)
                result = work(
                    *(
                        Pieces(metric, shelf, [part, *others[metric.name]], self._hold)
                        for metric, part in zip(metrics, mine, strict=True)
                    )
                )
        except (BadRequest, Compacted):
            self._idle.append(shelf)
            raise
        except BaseException:
            shelf.close()
            raise
        self._idle.append(shelf)
        return result


def _others(shelf: Shelf, metrics: Sequence[Metric], start: float, end: float) -> dict[str, list[OpenPart]]:
    """What other writers have only in their journals."""
    books: dict[tuple[str, str], Book] = {}
    wanted = {metric.name: metric for metric in metrics}
    for writer, entry in shelf.others(start):
        for samples in decode_journal(entry):
            if samples.metric in wanted:
                key = samples.metric, writer
                if key not in books:
                    books[key] = Book(wanted[samples.metric], math.inf)
                    books[key].sealed_until = shelf.sealed_until(*key)
                books[key].take(samples)
    found: dict[str, list[OpenPart]] = {name: [] for name in wanted}
    for (name, writer), book in books.items():
        found[name].append(OpenPart(writer, book, threading.Lock(), start, end))
    return found


def _check(samples: Samples) -> None:
    metric_named(samples.metric)
    if len(samples.uids) != len(samples.values):
        raise BadRequest(f"{len(samples.uids)} uids, but {len(samples.values)} values", where="values")
    if not math.isfinite(samples.time) or samples.time < 0:
        raise BadRequest(f"{samples.time} is no time", where="time", hint="give Unix seconds")
    if not (np.diff(samples.uids) > 0).all():
        raise BadRequest("not sorted, or some twice", where="uids", hint="sort them, each once")


def _sorted(uids: Uids | None) -> Uids | None:
    if uids is None:
        return None
    found = np.asarray(uids, np.int64)
    if not (np.diff(found) > 0).all():
        raise BadRequest("not sorted, or some twice", where="uids", hint="sort them, each once")
    return found
