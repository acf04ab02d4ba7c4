"""Jobs of one Grid Engine, by commands that a ``Runner`` runs.

Grid Engine forgets a job when it ends, and does not say who ended it: what was seen before and what was cancelled here
is remembered between looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from strata.core.errors import DeviceError, Unavailable
from strata.schedulers.by_commands import parts, unchanged
from strata.schedulers.dates import ZONE
from strata.schedulers.gridengine import job_replies, queues, submission
from strata.schedulers.jobs import MOST_PAST, JobSeen, Queue, Work
from strata.schedulers.members import members
from strata.schedulers.runner import Runner

ACCOUNTING_LAGS = 120.0
"""Seconds after which a job that is gone will not be in the accounting any more. It is written every 15 seconds."""
_ACCOUNTING_EVERY = 10.0
"""Seconds between two questions to the accounting: each reads the whole of its file."""
_FIRST_LOOK = 86_400.0
"""Seconds before the time in question in which a job may have begun that the first look finds in the accounting."""


class _Gone(NamedTuple):
    """A job that was seen, and is not any more."""

    job: JobSeen
    since: float


class GridEngineJobs:
    """Implements ``strata.schedulers.jobs.JobScheduler``."""

    ability = submission.ABILITY

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._details: dict[str, job_replies.Detail] = {}
        self._live: dict[str, JobSeen] = {}
        self._gone: dict[str, _Gone] = {}
        self._ended: dict[str, JobSeen] = {}
        self._cancelled: dict[str, float] = {}
        self._accounted: float | None = None
        """When the accounting was asked."""

    async def submit(self, work: Work) -> str:
        """By ``qsub``; with the parallel environment that spreads its slots as it asks."""
        several = work.resources.nodes > 1 or work.resources.tasks * work.resources.cores > 1
        command, script = submission.build(work, await environments(self._runner) if several else [])
        try:
            said = await self._runner.run(*command, stdin=script, account=work.account)
        except DeviceError as error:
            self._accounted = None
            raise submission.refusal(error.reply) from None
        except Unavailable:
            # It may have been taken, and may end before anybody sees it.
            self._accounted = None
            raise
        one = submission.submitted(said)
        # So that one that has ended before the next look is looked for in the accounting.
        self._live |= {job.id: job for job in _just_submitted(work, one)}
        return one

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """By ``qstat``, twice; and by ``qacct`` where a job has gone."""
        began = time.time()
        ended_since = max(ended_since, began - MOST_PAST)
        said = await self._runner.run(*job_replies.JOBS, env=ZONE)
        bare = await asyncio.to_thread(job_replies.jobs, said, self._details)
        numbers = {job.id.partition(".")[0] for job in bare}
        self._details = {number: detail for number, detail in self._details.items() if number in numbers}
        asked = {job.id for job in bare if job.id.partition(".")[0] not in self._details or job.state != "running"}
        if asked:
            told = await self._runner.run(*job_replies.details_of(asked), env=ZONE)
            self._details |= await asyncio.to_thread(job_replies.details, told)
        live = {job.id: job for job in await asyncio.to_thread(job_replies.jobs, said, self._details)}
        now = time.time()
        self._cancelled |= {one: now for one, job in live.items() if job.state == "ending"}
        # What was submitted while qstat looked is not gone.
        before = {one: job for one, job in self._live.items() if (job.submitted or 0.0) < began}
        newer = {one: job for one, job in self._live.items() if one not in before and one not in live}
        self._gone |= {one: _Gone(job, now) for one, job in before.items() if one not in live}
        self._gone = {one: gone for one, gone in self._gone.items() if one not in live}
        self._live = {**live, **newer}
        await self._account(ended_since, now)
        self._forget(ended_since, now)
        return [*self._live.values(), *self._ended.values(), *(_ending(gone.job) for gone in self._gone.values())]

    async def _account(self, ended_since: float, now: float) -> None:
        """Find out how those that are gone have ended."""
        first = self._accounted is None
        due = first or (bool(self._gone) and now - (self._accounted or 0.0) >= _ACCOUNTING_EVERY)
        if due:
            began = [gone.job.began or gone.job.submitted or now for gone in self._gone.values()]
            since = min((*began, *([ended_since - _FIRST_LOOK] if first else [])))
            said = await self._past(since)
            self._accounted = now
            for job in await asyncio.to_thread(lambda: list(job_replies.ended(said))):
                known = first and (job.ended or 0.0) >= ended_since
                if job.id not in self._live and (known or job.id in self._gone):
                    self._ended[job.id] = self._judged(job)
                    self._gone.pop(job.id, None)
        for one, gone in list(self._gone.items()):
            cancelled, began_once = self._was_cancelled(one), gone.job.began is not None
            late = now - gone.since > ACCOUNTING_LAGS
            if (cancelled or late) and not began_once:
                # Of what never began, nothing is accounted for.
                self._ended[one] = _never_began(gone, "" if cancelled else "it left the queue before it began")
                del self._gone[one]
            elif late:
                del self._gone[one]

    async def _past(self, since: float) -> str:
        try:
            return await self._runner.run(*job_replies.past(since), env=ZONE)
        except DeviceError as error:
            # Where no job has ever ended there is no file yet.
            if "No such file" in error.reply or submission.is_gone(error.reply):
                return ""
            raise

    def _judged(self, job: JobSeen) -> JobSeen:
        killed = job.outcome == "failed" and job.signal is not None
        if killed and self._was_cancelled(job.id):
            return msgspec.structs.replace(job, outcome="cancelled", reason="it was cancelled")
        return job

    def _was_cancelled(self, one: str) -> bool:
        return one in self._cancelled or one.partition(".")[0] in self._cancelled

    def _forget(self, ended_since: float, now: float) -> None:
        self._ended = {one: job for one, job in self._ended.items() if (job.ended or now) >= ended_since}
        oldest = min(ended_since, now - ACCOUNTING_LAGS)
        self._cancelled = {
            one: at for one, at in self._cancelled.items() if at >= oldest or one in self._live or one in self._gone
        }

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """By ``qdel``. Those that have ended are no error."""
        for some in parts(ids, submission.job_id):
            now = time.time()
            await self._change("qdel", *some, account=account, gone=True)
            self._cancelled |= dict.fromkeys(some, now)

    async def hold(self, account: str, ids: Sequence[str]) -> None:
        """By ``qhold``."""
        for some in parts(ids, submission.job_id):
            await self._change("qhold", *some, account=account)

    async def release(self, account: str, ids: Sequence[str]) -> None:
        """By ``qrls``."""
        for some in parts(ids, submission.job_id):
            await self._change("qrls", *some, account=account)

    async def queues(self) -> Sequence[Queue]:
        """By ``qconf`` and ``qhost``, and whatever knows the groups."""
        names = (await self._runner.run(*queues.NAMES)).split()
        if not names:
            return []
        told = queues.settings(await self._runner.run(*queues.settings_of(names)))
        hosts = await self._runner.run(*queues.HOSTS)
        lists = await self._access_lists(told)
        return await asyncio.to_thread(queues.queues, told, hosts, lists, list(self._live.values()))

    async def expected(self, work: Work) -> float | None:
        """Grid Engine cannot tell."""
        submission.build(work, await environments(self._runner))
        return None

    async def _access_lists(self, told: Sequence[Mapping[str, str]]) -> Mapping[str, frozenset[str]]:
        used = sorted({name for queue in told for name in queues.lists_of(queue)})
        if not used:
            return {}
        lists = queues.access_lists(await self._runner.run(*queues.access_lists_of(used)))
        groups = sorted({entry[1:] for entries in lists.values() for entry in entries if entry.startswith("@")})
        found = await members(self._runner, groups)
        return {
            name: frozenset(
                one for entry in entries for one in (found.get(entry[1:], ()) if entry[:1] == "@" else (entry,))
            )
            for name, entries in lists.items()
        }

    async def _change(self, *command: str, account: str, gone: bool = False) -> None:
        ended = await self._runner.finish(*command, account=account)
        if ended.status == 0:
            return
        said = (ended.output.decode(errors="replace") + ended.errors).strip()
        # A line for each job that was not changed, and one for each that was.
        wrong = [line for line in said.splitlines() if not (_is_changed(line) or (gone and submission.is_gone(line)))]
        if wrong:
            raise unchanged(submission, DeviceError(told := " ".join(wrong)[:300], node=command[0], reply=told))


async def environments(runner: Runner) -> list[submission.Environment]:
    """All parallel environments."""
    try:
        names = (await runner.run(*submission.ENVIRONMENTS)).split()
    except DeviceError as error:
        if "no parallel environment" in error.reply:
            return []
        raise
    return [submission.environment(await runner.run("qconf", "-sp", name)) for name in names]


def _is_changed(line: str) -> bool:
    return "has registered" in line or "has deleted" in line or "modified" in line


def _just_submitted(work: Work, one: str) -> Iterator[JobSeen]:
    job = JobSeen(id=one, key=work.key, account=work.account, state="waiting", submitted=time.time())
    if work.array is None:
        yield job
    for index in work.array.indices if work.array is not None else ():
        yield msgspec.structs.replace(job, id=f"{one}.{index + 1}", index=index)


def _ending(job: JobSeen) -> JobSeen:
    return msgspec.structs.replace(job, state="ending", reason="how it ended is not in the accounting yet")


def _never_began(gone: _Gone, reason: str) -> JobSeen:
    return msgspec.structs.replace(
        gone.job, state="ended", outcome="cancelled", reason=reason or "it was cancelled", ended=gone.since
    )
