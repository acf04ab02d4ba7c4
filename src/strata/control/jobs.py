"""Work on many nodes that outlives a request and a process: accepted, tracked, cancellable, resumed.

A job is a row in the store: its kind, its arguments, how far it is. Kinds are registered explicitly with the function
that does them. The controller that accepted a job works on it; when that one's member key (``controller/<name>``) is
gone, another takes the job over from the recorded position. Whoever writes a job's row does so only if nobody else
has, so a controller that lost its job notices at its next report and stops.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from strata.control.job_record import PREFIX, Job, Work, decode, encode
from strata.core.errors import BadRequest, Conflict, NotFound, StrataError, Unavailable
from strata.store.audit import Ledger
from strata.store.protocol import Delete, Entry, Put, Store

log = logging.getLogger(__name__)


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs are kept."""

    report_every: float = 1.0
    """Seconds between two writes of a job's progress; also how long a cancel from elsewhere can take to be seen."""
    retry_after: float = 1.0
    """Seconds until work goes on after the store was away; doubles up to 30."""
    keep: float = 7 * 86400.0
    """Seconds that a finished job can be looked at."""


class Jobs:
    """The jobs of one controller, and a view of everybody's."""

    def __init__(
        self, store: Store, ledger: Ledger, *, owner: str, instance: str = "", settings: JobSettings | None = None
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._owner = owner
        self._instance = instance or secrets.token_hex(8)
        self._settings = settings or JobSettings()
        self._kinds: dict[str, Work] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Event] = {}

    def register(self, kind: str, work: Work) -> None:
        """Say how jobs of a kind are done. Before ``start`` and ``recover``."""
        if kind in self._kinds:
            raise BadRequest("registered twice", where=f"job kind {kind}")
        self._kinds[kind] = work

    async def start(self, kind: str, author: str, total: int, arguments: Mapping[str, Any]) -> Job:
        """Accept a job: once this returns it is durable, and will be done whatever becomes of this process."""
        if kind not in self._kinds:
            raise BadRequest(f"no such kind of job; known are {', '.join(sorted(self._kinds))}", where=kind)
        now = time.time()
        job = Job(
            # In the order of creation, so that a listing needs no sorting; and not to be guessed.
            id=f"{int(now * 1000):011x}{secrets.token_hex(3)}",
            kind=kind,
            author=author,
            created=now,
            arguments=arguments,
            total=total,
            owner=self._owner,
            instance=self._instance,
        )
        key = PREFIX + job.id
        revision = await self._ledger.commit(
            author, "job.start", job.id, [Put(key, encode(job))], {key: 0}, {"kind": kind, "total": total}
        )
        self._launch(job, revision)
        return job

    async def show(self, job_id: str) -> Job:
        """A job as it stands."""
        return decode((await self._entry(job_id)).value)

    async def recent(self, limit: int = 100, after: str = "") -> list[Job]:
        """Jobs, newest first; ``after`` is the id of the last one that was seen."""
        page = await self._store.range(PREFIX)
        entries = [entry for entry in reversed(page.entries) if not after or entry.key < PREFIX + after]
        return [decode(entry.value) for entry in entries[:limit]]

    async def cancel(self, job_id: str, author: str) -> Job:
        """Ask a job to stop between two chunks. What is done stays done. ``Conflict`` if it is over."""
        while True:
            entry = await self._entry(job_id)
            job = decode(entry.value)
            if job.over:
                raise Conflict(f"it is {job.state} already", where=f"job {job_id}", revision=entry.modified)
            if not job.cancel:
                job = msgspec.structs.replace(job, cancel=True)
                if job_id not in self._running and not await self._alive(job):
                    job = job.ended("cancelled", time.time())
                op = Put(entry.key, encode(job))
                try:
                    await self._ledger.commit(author, "job.cancel", job_id, [op], {entry.key: entry.modified})
                except Conflict:
                    continue
            if job_id in self._stops:
                self._stops[job_id].set()
            return job

    async def wait(self, job_id: str) -> Job:
        """Until a job that runs here is over."""
        if task := self._running.get(job_id):
            await asyncio.wait([task])
        return await self.show(job_id)

    async def recover(self) -> list[str]:
        """Take over the unfinished jobs whose controller is gone (or was this one, before it was started anew); their
        ids. Call at the start, and when a member key disappears."""
        taken = []
        for entry in (await self._store.range(PREFIX)).entries:
            job = decode(entry.value)
            if job.over or job.id in self._running or await self._alive(job):
                continue
            job = msgspec.structs.replace(job, owner=self._owner, instance=self._instance)
            try:
                revision = await self._store.txn([Put(entry.key, encode(job))], expect={entry.key: entry.modified})
            except Conflict:
                continue  # another controller was faster
            log.info("job taken over", extra={"job": job.id, "kind": job.kind, "done": job.done, "total": job.total})
            self._launch(job, revision)
            taken.append(job.id)
        return taken

    async def prune(self) -> int:
        """Forget jobs that were over long ago; how many."""
        cut = time.time() - self._settings.keep
        old = [
            entry
            for entry in (await self._store.range(PREFIX)).entries
            if (finished := decode(entry.value).finished) is not None and finished < cut
        ]
        if old:
            ops = [Delete(entry.key) for entry in old]
            await self._ledger.commit_many(
                f"controller:{self._owner}", "job.prune", f"{len(ops)} jobs", ops, {e.key: e.modified for e in old}
            )
        return len(old)

    async def close(self) -> None:
        """Stop working; unfinished jobs go on elsewhere, or here after a restart."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _entry(self, job_id: str) -> Entry:
        entry = await self._store.get(PREFIX + job_id)
        if entry is None:
            raise NotFound(f"no such job: {job_id[:40]}", where="job", hint="list them with: strata jobs list")
        return entry

    async def _alive(self, job: Job) -> bool:
        """Whether somebody still works on a job that does not run here."""
        if job.owner == self._owner:
            return job.instance == self._instance and job.id in self._running
        return await self._store.get(f"controller/{job.owner}") is not None

    def _launch(self, job: Job, revision: int) -> None:
        self._stops[job.id] = asyncio.Event()
        task = asyncio.create_task(self._run(job, revision), name=f"job-{job.id}")
        self._running[job.id] = task
        task.add_done_callback(lambda _: self._forget(job.id))

    def _forget(self, job_id: str) -> None:
        self._running.pop(job_id, None)
        self._stops.pop(job_id, None)

    async def _run(self, job: Job, revision: int) -> None:
        run = _Run(self._store, job, revision, self._stops[job.id], self._settings)
        wait = self._settings.retry_after
        while not run.over:
            try:
                await run.work(self._kinds.get(job.kind))
            except _Lost:
                log.info("job is another controller's now", extra={"job": job.id})
                return
            except Unavailable as error:
                log.warning("job waits: the store is away", extra={"job": job.id, "error": str(error)})
                await asyncio.sleep(wait)
                wait = min(30.0, wait * 2)


class _Lost(Exception):
    """Somebody else writes the job's row."""


class _Run:
    """One job being worked on here."""

    def __init__(self, store: Store, job: Job, revision: int, stop: asyncio.Event, settings: JobSettings) -> None:
        self._store = store
        self._job = job
        self._revision = revision
        self._stop = stop
        self._every = settings.report_every
        self._reported = -float("inf")

    @property
    def over(self) -> bool:
        return self._job.over

    async def work(self, work: Work | None) -> None:
        """Go on from the recorded position to the end, a cancel or an error."""
        if work is None:
            await self._end("failed", f"this version does not know jobs of kind {self._job.kind}")
            return
        await self._report(msgspec.structs.replace(self._job, state="running"))
        steps = work(self._job.arguments, self._job.position)
        try:
            while not self._stopped():
                step = await anext(steps, None)
                if step is None:
                    hopeless = self._job.total > 0 and self._job.failed >= self._job.total
                    await self._end("failed" if hopeless else "done")
                    return
                self._job = self._job.after(step)
                if step.durable or time.monotonic() - self._reported >= self._every:
                    await self._report(self._job)
            await self._end("cancelled")
        except (Unavailable, _Lost):
            raise
        except StrataError as error:
            await self._end("failed", str(error))
        except Exception as error:
            log.exception("job failed", extra={"job": self._job.id})
            await self._end("failed", f"internal error: {type(error).__name__}")
        finally:
            closing = getattr(steps, "aclose", None)
            if closing is not None:
                await closing()

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._job.cancel

    async def _end(self, state: str, why: str = "") -> None:
        await self._report(self._job.ended(state, time.time(), why))  # type: ignore[arg-type]

    async def _report(self, job: Job) -> None:
        """Write the job's row; a cancel that came from elsewhere is taken in on the way."""
        key = PREFIX + job.id
        while True:
            try:
                self._revision = await self._store.txn([Put(key, encode(job))], expect={key: self._revision})
            except Conflict:
                entry = await self._store.get(key)
                now = decode(entry.value) if entry else None
                if entry is None or now is None or (now.owner, now.instance) != (job.owner, job.instance):
                    raise _Lost from None
                job = msgspec.structs.replace(job, cancel=now.cancel)
                self._revision = entry.modified
                continue
            self._job = job
            self._reported = time.monotonic()
            return
