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
from strata.core.extras import needs
from strata.power.series import query
from strata.power.series.chunk_store import LEVELS, ChunkStore, decode_journal
from strata.power.series.ends import AROUND
from strata.power.series.intake import Intake
from strata.power.series.open_chunks import OpenMetric
from strata.power.series.reader import OpenPart, Reader
from strata.power.series.records import (
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
)  # fmt: skip
from strata.power.series.sqlite import SqliteChunkStore

_T = TypeVar("_T")

READERS = 2


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds samples and summaries are kept. Defaults: two days, a month, a year, ten years."""

    samples: float = 2 * 86400.0
    minutes: float = 31 * 86400.0
    ten_minutes: float = 366 * 86400.0
    hours: float = 10 * 366 * 86400.0


class Series:
    """Where samples are kept. Safe for many tasks of one event loop; never blocks it. ``open_store`` opens the chunk
    store (with True: the one that writes)."""

    def __init__(
        self,
        open_store: Callable[[bool], ChunkStore],
        *,
        flush_every: float = 5.0,
        lateness: float = 60.0,
        hold: float = 90.0,
        keep: Keep | None = None,
        clock: Callable[[], float] = real_time.time,
    ) -> None:
        """``hold``: how long a gauge is trusted between two samples; some more than twice the slowest source's pace."""
        self._open_store = open_store
        self._flush_every = flush_every
        self._hold = hold
        self._keep = keep or Keep()
        self._clock = clock
        self._intake = Intake(lambda: open_store(True), lateness, hold, clock)
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="telemetry-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="telemetry-read")
        self._idle: list[ChunkStore] = []
        self._started = self._closed = False

    @classmethod
    def in_file(cls, path: Path, **options: object) -> Series:
        """In the file ``path``; options as of the class."""
        return cls(lambda writes: SqliteChunkStore(path, writes=writes), **options)  # type: ignore[arg-type]

    @classmethod
    def in_postgres(cls, address: str, writer: str, **options: object) -> Series:
        """In a site's PostgreSQL, written to under the name ``writer`` (each controller has its own)."""
        with needs("psycopg", "postgres", "telemetry in PostgreSQL"):
            from strata.power.series.postgres import PostgresChunkStore

        return cls(lambda writes: PostgresChunkStore(address, writer, writes=writes), **options)  # type: ignore[arg-type]

    async def start(self) -> None:
        """Open it, and take up what was in the journal."""
        await self._write(self._intake.start)
        self._started = True

    @property
    def refused(self) -> Refusals:
        return self._intake.refused

    @property
    def trouble(self) -> str:
        """Why samples cannot be made durable now; empty when they can."""
        return self._intake.trouble

    async def append(self, batch: Sequence[Samples]) -> None:
        """Take samples; they can be read at once, and survive a crash after ``flush_every`` seconds. What comes twice
        counts once; what comes late is put in its place, or refused and counted if it is too late for that."""
        for samples in batch:
            _check(samples)
        await self._write(self._intake.append, batch)
        self._arm()

    async def flush(self) -> None:
        """Make durable what was taken so far."""
        await self._write(self._intake.flush)

    async def window(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Window:
        """The samples from ``start`` to before ``end``; without ``uids``, of all nodes that have any."""
        query.check_window(start, end, step)
        return await self._ask(query.window, (metric_named(metric),), start, end, _sorted(uids), start, end, step)

    async def latest(self, metric: str, uids: Uids | None, within: float) -> Latest:
        """The newest sample of each node that is at most ``within`` seconds old."""
        since = self._clock() - within
        return await self._ask(query.latest, (metric_named(metric),), since, math.inf, _sorted(uids), since)

    async def energy(self, uids: Uids | None, start: float, end: float) -> Energy:
        """What each node used from ``start`` to ``end``."""
        query.check_window(start, end, 0)
        both = METRICS["energy"], METRICS["power"]
        return await self._ask(query.energy, both, start - AROUND, end + AROUND, _sorted(uids), start, end)

    async def total(self, metric: str, uids: Uids | None, start: float, end: float, *, step: float = 0) -> Total:
        """The sum over nodes at each second that has samples, or for each step (of node means: take a step no shorter
        than the time between a node's samples)."""
        query.check_window(start, end, step)
        return await self._ask(query.total, (metric_named(metric),), start, end, _sorted(uids), start, end, step)

    async def totals(self, metric: str, uids: Uids, groups: Counts, start: float, end: float) -> GroupTotals:
        """The sums over the nodes of each group (cabinets, say) at each second that has samples. ``groups`` has the
        number of the group of each uid."""
        query.check_window(start, end, 0)
        if len(groups) != len(uids):
            raise BadRequest(f"{len(uids)} uids, but {len(groups)} groups", where="groups")
        return await self._ask(query.totals, (metric_named(metric),), start, end, _sorted(uids), groups, start, end)

    async def prune(self, now: float) -> int:
        """Drop what is older than the retention of its level; how many chunks went."""
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
        """Make everything durable, and let go."""
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

    async def _ask(
        self, work: Callable[..., _T], metrics: Sequence[Metric], start: float, end: float, *arguments: object
    ) -> _T:
        """Have a reader's thread do ``work`` with a reader of each metric for this time, and the arguments."""
        if self._closed:
            raise Unavailable("the telemetry is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._ask_now, work, metrics, start, end, arguments)

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
        for store in self._idle:
            store.close()

    # The readers' threads.

    def _ask_now(
        self, work: Callable[..., _T], metrics: Sequence[Metric], start: float, end: float, arguments: Sequence[object]
    ) -> _T:
        early, late = start - self._hold, end + self._hold
        try:
            store = self._idle.pop()
        except IndexError:
            store = self._open_store(False)
        try:
            # Memory first, the database then: see above.
            books, lock = self._intake.books, self._intake.lock
            with lock:
                mine = [OpenPart(store.writer, books[metric.name], lock, early, late) for metric in metrics]
            with store.transaction():
                others = _others(store, metrics, early, late)
                readers = [
                    Reader(metric, store, [part, *others[metric.name]], self._hold)
                    for metric, part in zip(metrics, mine, strict=True)
                ]
                result = work(*readers, *arguments)
        except (BadRequest, Compacted):
            self._idle.append(store)
            raise
        except BaseException:
            store.close()
            raise
        self._idle.append(store)
        return result


def _others(store: ChunkStore, metrics: Sequence[Metric], start: float, end: float) -> dict[str, list[OpenPart]]:
    """What other writers have only in their journals."""
    books: dict[tuple[str, str], OpenMetric] = {}
    wanted = {metric.name: metric for metric in metrics}
    for writer, entry in store.others(start):
        for samples in decode_journal(entry):
            if samples.metric in wanted:
                key = samples.metric, writer
                if key not in books:
                    books[key] = OpenMetric(wanted[samples.metric], math.inf)
                    books[key].sealed_until = store.sealed_until(*key)
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
    _sorted(samples.uids)


def _sorted(uids: Uids | None) -> Uids | None:
    if uids is None:
        return None
    found = np.asarray(uids, np.int64)
    if not (np.diff(found) > 0).all():
        raise BadRequest("not sorted, or some twice", where="uids", hint="sort them, each once")
    return found
