"""The embedded store: one SQLite file, used by any number of processes on one machine.

One thread writes. It takes all transactions that are waiting, does them in one SQLite transaction and syncs once
(group commit), then answers them all. Reads run in other threads on connections of their own. The event loop never
waits for the disk. What happens to the file is in ``engine.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from strata.core.errors import Corrupt, Refused, StrataError, Unavailable
from strata.store.dump import write_dump
from strata.store.feed import Feed
from strata.store.keys import check_txn
from strata.store.lease import check_ttl
from strata.store.protocol import Entry, Event, Op, Page
from strata.store.sqlite import engine
from strata.store.sqlite.check import check_file
from strata.store.sqlite.file import Mark, Presence, checksum_vfs, connect, create_or_check, translated

_T = TypeVar("_T")

PULSE = 0.05
"""Seconds between looks at the clock (for leases) and at what other processes wrote."""

GROUP = 20_000
"""Operations after which no further transaction joins those that share a sync."""

READERS = 4


class SqliteStore:
    """A store in the file ``path``, which is made if it is not there."""

    max_ops = 10_000

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic, vfs: str = "") -> None:
        self.path = path
        self._clock = clock
        self._vfs = vfs or checksum_vfs()
        path.parent.mkdir(parents=True, exist_ok=True)
        with translated(path):
            self._presence = Presence(path)
            self._mark = Mark(path)
        try:
            self._db = create_or_check(path, self._vfs)
            with translated(path):
                head, gone = self._take_over()
        except BaseException:
            self._mark.close()
            self._presence.close()
            raise
        self._feed = Feed(head, gone)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="strata-store-read")
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._refused = False

    def _take_over(self) -> tuple[int, int]:
        # First the promise, then the state: another process may be writing.
        promised = self._mark.read()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            writing = engine.Writing(self._db, self._clock)
            if writing.revision < promised:
                raise Corrupt(
                    f"the newest revision is {writing.revision}, but {promised} was acknowledged: its end was lost",
                    where=str(self.path),
                    hint="restore it from a backup, or remove all files of the store to begin anew",
                )
            if self._presence.first:
                writing.renew_all()
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            self._db.close()
            raise
        self._presence.share()
        self._data_version = self._db.pragma("data_version")
        return writing.revision, writing.compacted

    async def get(self, key: str) -> Entry | None:
        return await self._read(engine.read_entry, key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        return await self._read(engine.read_range, prefix, after, limit, revision)

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        check_txn(ops, expect, self.max_ops)
        return await self._write(lambda w: w.txn(ops, expect or {}), weight=len(ops))

    async def revision(self) -> int:
        return (await self._read(engine.read_state))[0]

    def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        self._bind()
        return self._feed.follow(prefix, start or self._feed.head + 1, self._read_log)

    async def grant(self, ttl: float) -> int:
        check_ttl(ttl)
        return await self._write(lambda w: w.grant(ttl))

    async def renew(self, lease: int) -> bool:
        return await self._write(lambda w: w.renew(lease))

    async def revoke(self, lease: int) -> None:
        await self._write(lambda w: w.end_lease(lease))

    async def compact(self, revision: int) -> None:
        await self._write(lambda w: w.compact(revision))
        # Rows go in small steps, so that other writers get their turn.
        while await self._write(lambda w: w.sweep()):
            pass

    async def backup(self, path: Path) -> int:
        return await self._read(self._dump, path)

    async def check(self) -> list[str]:
        return await self._read(check_file, self.path)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._feed.close()
        await asyncio.to_thread(self._shut)

    async def load(self, entries: Iterable[Entry], above: int, *, overwrite: bool = False) -> None:
        """Hold ``entries`` and nothing else, at a revision above ``above``; for restoring."""
        if not self._presence.alone():
            raise Refused(
                "another process has the store open", by="restore", where=str(self.path), hint="stop it, then restore"
            )
        try:
            await self._write(lambda w: w.load(entries, above, overwrite))
        finally:
            self._presence.share()

    async def _read_log(self, prefix: str, start: int, limit: int) -> tuple[list[Event], int]:
        return await self._read(engine.read_log, prefix, start, limit)

    @staticmethod
    def _dump(db: apsw.Connection, path: Path) -> int:
        with engine.reading(db):
            revision = engine.read_state(db)[0]
            write_dump(path, revision, engine.all_entries(db))
        return revision

    # The event loop's side.

    def _bind(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Unavailable("the store is closed", where=str(self.path))
        loop = self._loop = asyncio.get_running_loop()
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_loop, name="strata-store-write", daemon=True)
            self._writer.start()
        return loop

    async def _read(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await self._bind().run_in_executor(self._readers, self._read_now, function, arguments)

    async def _write(self, function: Callable[[engine.Writing], _T], weight: int = 1) -> _T:
        self._bind()
        job = _Job(function, weight)
        self._jobs.put(job)
        result: _T = await asyncio.wrap_future(job.done)
        return result

    def _told(self, published: list[tuple[int, list[Event]]], head: int, gone: int) -> None:
        for revision, events in published:
            self._feed.publish(revision, events)
        self._feed.compact(gone)
        self._feed.advance(head)

    # The readers' side.

    def _read_now(self, function: Callable[..., _T], arguments: tuple[Any, ...]) -> _T:
        with translated(self.path):
            try:
                db = self._idle.pop()
            except IndexError:
                db = connect(self.path, self._vfs, writable=False)
            try:
                return function(db, *arguments)
            finally:
                self._idle.append(db)

    # The writer's side.

    def _write_loop(self) -> None:
        next_lease = 0.0
        next_pulse = 0.0
        jobs: list[_Job] | None = []
        while jobs is not None:
            jobs = self._waiting()
            if jobs:
                self._commit(jobs)
                next_lease = 0.0
            # Also when there is always something to write.
            if time.monotonic() >= next_pulse:
                next_lease = self._pulse(next_lease)
                next_pulse = time.monotonic() + PULSE

    def _waiting(self) -> list[_Job] | None:
        """The jobs that will share a sync, after a wait of at most one pulse; None: the store was closed."""
        jobs: list[_Job] = []
        weight = 0
        try:
            job = self._jobs.get(timeout=PULSE)
            while job is not None:
                jobs.append(job)
                weight += job.weight
                if weight >= GROUP:
                    return jobs
                job = self._jobs.get_nowait()
        except queue.Empty:
            return jobs
        if jobs:
            self._jobs.put(None)  # Found again once these are done.
            return jobs
        return None

    def _pulse(self, next_lease: float) -> float:
        """Between writes: end leases, and notice what other processes wrote. Returns when the next lease may end."""
        try:
            with translated(self.path):
                if self._refused:
                    self._scrub()
                version = self._db.pragma("data_version")
                if version != self._data_version:
                    self._data_version = version
                    head, gone, _ = engine.read_state(self._db)
                    self._tell([], head, gone)
                    next_lease = 0.0
                if self._clock() >= next_lease:
                    self._commit([_Job(lambda w: w.expire())] if engine.lease_due(self._db, self._clock()) else [])
                    next_lease = engine.next_deadline(self._db)
        except StrataError:
            # The disk is away; the next pulse tries again, and callers hear of it from their own requests.
            return 0.0
        return next_lease

    def _commit(self, jobs: list[_Job]) -> None:
        """Do the jobs in one SQLite transaction. A job that is refused does not harm the others; a failing disk
        fails them all."""
        if not jobs:
            return
        try:
            with translated(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    writing = engine.Writing(self._db, self._clock)
                    for job in jobs:
                        job.run(writing)
                    writing.finish()
                    self._db.execute("COMMIT")
                except BaseException:
                    self._refused = True
                    self._roll_back()
                    raise
        except StrataError as error:
            for job in jobs:
                job.fail(error)
            return
        except Exception as error:
            for job in jobs:
                job.fail(Unavailable(f"writing failed: {error!r}", where=str(self.path)))
            return
        if writing.published:
            self._mark.write(writing.revision)
        self._tell(writing.published, writing.revision, writing.compacted)
        for job in jobs:
            job.answer()

    def _scrub(self) -> None:
        """Overwrite what a failed commit left in the log. Otherwise, if its sync failed and nothing else were written,
        a crash could bring back a change that was refused."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("UPDATE state SET scrubs = scrubs + 1")
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._refused = False

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _tell(self, published: list[tuple[int, list[Event]]], head: int, gone: int) -> None:
        # A loop that was closed has no watchers to tell.
        with contextlib.suppress(RuntimeError):
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._told, published, head, gone)

    def _shut(self) -> None:
        if self._writer:
            self._jobs.put(None)
            self._writer.join()
        self._readers.shutdown()
        for db in self._idle:
            db.close()
        self._db.close()
        self._mark.close()
        self._presence.close()


class _Job:
    """One waiting change and the answer to it."""

    __slots__ = ("_error", "_function", "_result", "done", "weight")

    def __init__(self, function: Callable[[engine.Writing], Any], weight: int = 1) -> None:
        self._function = function
        self.weight = weight + 1
        self.done: Future[Any] = Future()
        self._result: Any = None
        self._error: StrataError | None = None

    def run(self, writing: engine.Writing) -> None:
        """Do it. What the store refuses is kept as the answer; what the disk refuses is raised."""
        try:
            self._result = self._function(writing)
        except StrataError as error:
            self._error = error

    def answer(self) -> None:
        """Give the answer, once the transaction is durable."""
        if not self.done.set_running_or_notify_cancel():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(self._result)

    def fail(self, error: StrataError) -> None:
        """Nothing was done."""
        if self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)
