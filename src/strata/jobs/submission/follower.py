"""Follows jobs to their end: one look at each target for everybody, what it says kept in batches, what was lost on the
way found again, what was asked for and not done yet done again; and ended jobs forgotten in time."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.jobs.accounts import LocalAccounts
from strata.jobs.settings import JobSettings
from strata.jobs.submission.index import JobIndex
from strata.jobs.submission.records import Job, Task
from strata.jobs.submission.script import END
from strata.jobs.submission.targets import Look, Target
from strata.jobs.submission.views import closed, differ, moved, untold, waits_for
from strata.schedulers.jobs import JobSeen
from strata.store.records import Records

log = logging.getLogger(__name__)

DUTY = "jobs"
"""What only one controller does: to follow jobs that are elsewhere."""
RESEND_AFTER = 90.0
"""Seconds after which a job that nobody has seen at its scheduler is sent again: longer than the command that sent it
can have been under way, and than a scheduler takes to show what it took."""
LOST_AFTER = 60.0
"""Seconds for which a job must be missing from its scheduler's answers before it is held to have ended."""
AGAIN = 30.0
"""Seconds after which somebody's wish to end a job is told again to a scheduler that did not hear it."""
_FORGET = 500
"""Ended jobs that are forgotten at one time."""
_CLOCKS = 10.0
"""Seconds by which this machine's clock may have been set back between the beginning and the end of a job."""
_TURN = 200
"""Jobs that are looked at before others have a turn."""
_QUICK_TURN = 2000
"""The same, where no more than a table is made of them."""
_ENDS = 200
"""Files that one command reads."""
_TASK = re.compile(r"[_.\[(]")


class JobFollower:
    """Over all ``targets``. ``send`` hands a job to its target."""

    def __init__(
        self,
        fleet: Fleet,
        records: Records[Job],
        index: JobIndex,
        targets: dict[str, Target],
        accounts: LocalAccounts,
        settings: JobSettings,
        send: Callable[[Job], Awaitable[str]],
    ) -> None:
        self._fleet = fleet
        self._duty = fleet.controller.leadership.duty(DUTY)
        self._records = records
        self._index = index
        self._targets = targets
        self._accounts = accounts
        self._settings = settings
        self._send = send
        self._clock = fleet.controller.clock.wall
        self.sending: set[str] = set()
        """Jobs that this process is sending for the first time."""
        self._missing: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._pause = 0.0
        self._turns: dict[str, asyncio.Lock] = {}
        self._polls: dict[str, tuple[Target, Recurring]] = {}
        self._forgetting = Recurring("old jobs", self._forget, lambda: 60.0, trouble="old jobs are not forgotten")

    async def start(self) -> None:
        """Look now, and again and again."""
        await self.refresh()
        await self._forgetting.start()

    async def stop(self) -> None:
        """Look no more."""
        await self._forgetting.stop()
        for _, poll in self._polls.values():
            await poll.stop()
        self._polls.clear()

    async def refresh(self) -> None:
        """Begin to look at targets that are new, and end it at those that are not there any more."""
        for name in [name for name, (target, _) in self._polls.items() if self._targets.get(name) is not target]:
            await self._polls.pop(name)[1].stop()
        for name, target in self._targets.items():
            if name not in self._polls:
                poll = Recurring(
                    f"jobs of {name}",
                    partial(self._poll, target),
                    lambda: float(self._settings.poll),
                    trouble=f"{name} was not asked about its jobs",
                )
                self._polls[name] = (target, poll)
                await poll.start()

    def soon(self) -> None:
        """Something changed on this machine: look at once."""
        for name, target in self._targets.items():
            if target.local and name in self._polls:
                self._polls[name][1].soon()

    async def look(self, target: Target) -> None:
        """Look now, for somebody who has changed something."""
        async with self._turns.setdefault(target.name, asyncio.Lock()):
            await self._settle(target, await target.look(self._oldest(target)))

    def _oldest(self, target: Target) -> float:
        """When the first of a machine's own jobs came that has not ended as far as is kept: one that comes by the
        hundred a second is not to be told of all others that ended in the last minutes, time and again."""
        if not target.local:
            return 0.0
        lines = self._index.lines
        open_jobs = self._index.open.get(target.name, ())
        return min((lines[ident].submitted for ident in open_jobs), default=self._clock()) - _CLOCKS

    async def cancel(self, job: Job) -> None:
        """Tell its scheduler; one that does not hear it now is told again. Of one that may not have arrived, it is seen
        whether it has."""
        target = self._targets.get(job.target)
        if target is None or not self._ours(target, job):
            return
        try:
            if job.there:
                self._told[job.id] = self._clock()
                await target.scheduler.cancel(job.account, [job.there])
            await self.look(target)
        except StrataError as error:
            log.warning("a job could not be ended yet", extra={"job": job.id, "reason": str(error)})

    # -- looks

    def _ours(self, target: Target, job: Job) -> bool:
        """Whether this controller is the one that follows the job."""
        return job.controller == self._fleet.controller.name if target.local else self._duty.here

    async def _poll(self, target: Target) -> None:
        if not target.local and not (self._duty.here and self._index.open.get(target.name)):
            return
        if target.local:
            await asyncio.sleep(self._pause)  # many ends at once are one look
        began = time.perf_counter()
        await self.look(target)
        self._pause = min(1.0, max(0.02, 10 * (time.perf_counter() - began)))

    async def _settle(self, target: Target, look: Look) -> None:
        """What a look says of the jobs that have not ended yet, kept in as few writes as it takes."""
        jobs = await self._followed(target)
        seen = await _grouped(jobs, look.jobs)
        changed: dict[str, Job] = {}
        unsure: list[tuple[Job, Task]] = []
        for number, job in enumerate(jobs):
            if number % _TURN == 0:
                await asyncio.sleep(0)  # others have their turn
            found = seen.get(job.id)
            if found is not None and self._same(job, found):
                continue
            if found is None and not job.there:
                await self._not_there(target, job, look)
                continue
            after = self._after(job, found or (), look, unsure)
            if found:
                self._index.told(job, waits_for(found))
            if differ(job.tasks, after.tasks) or after.there != job.there:
                changed[job.id] = after
        await self._close(target, unsure, changed)
        if changed:
            await self._records.note_all(changed)
        await self._cancel_again(target, jobs)

    async def _followed(self, target: Target) -> list[Job]:
        """Its jobs that have not ended, of which this controller is the one that follows them."""
        found = []
        for number, ident in enumerate(tuple(self._index.open.get(target.name, ()))):
            if number % _QUICK_TURN == 0:
                await asyncio.sleep(0)
            job = self._records.find(ident)
            if job is not None and self._ours(target, job):
                found.append(job)
        return found

    def _same(self, job: Job, found: Sequence[JobSeen]) -> bool:
        """Whether a job with one task is as it was: as most are, most of the time."""
        if len(job.tasks) != 1 or len(found) != 1 or not job.there or job.document.array is not None:
            return False
        task = job.tasks[0]
        if moved(task, found[0]) is not task:
            return False
        self._missing.pop(_name(job, task), None)
        self._index.told(job, waits_for(found))
        return True

    def _after(self, job: Job, found: Sequence[JobSeen], look: Look, unsure: list[tuple[Job, Task]]) -> Job:
        """The job as it was seen; into ``unsure`` go tasks that have ended in a way that nobody told."""
        array = job.document.array is not None
        by_index = {one.index: one for one in found}
        rest = by_index.get(None)
        tasks = []
        for task in job.tasks:
            one = by_index.get(task.index, rest) if array else rest or next(iter(found), None)
            if task.state == "ended":
                tasks.append(task)
            elif one is not None:
                now = moved(task, one)
                tasks.append(now)
                self._missing.pop(_name(job, task), None)
                if untold(now):
                    unsure.append((job, now))
            else:
                tasks.append(task)
                if look.began <= job.tried:
                    continue  # it may have arrived after that
                since = self._missing.setdefault(_name(job, task), look.began)
                if look.began - since >= LOST_AFTER or self._targets[job.target].local:
                    unsure.append((job, task))
        # Its id is what it was submitted as; of one whose answer was lost, what it is seen as.
        there = job.there or (_TASK.split(found[0].id)[0] if array else found[0].id)
        return msgspec.structs.replace(job, tasks=tuple(tasks), there=there)

    async def _close(self, target: Target, unsure: Iterable[tuple[Job, Task]], changed: dict[str, Job]) -> None:
        """End those whose end nobody told, by what they wrote down themselves."""
        waiting = list(unsure)
        wrote: dict[str, tuple[int, float, float]] = {}
        for account in {job.account for job, _ in waiting} if not target.local else ():
            paths = [_end_path(job, task) for job, task in waiting if job.account == account]
            for at in range(0, len(paths), _ENDS):
                try:
                    who = await self._accounts.named(account)
                    wrote |= await target.ends(who, paths[at : at + _ENDS])
                except StrataError as error:
                    log.warning("ends of jobs cannot be read", extra={"account": account, "reason": str(error)})
        for job, task in waiting:
            self._missing.pop(_name(job, task), None)
            job = changed.get(job.id, job)
            over = closed(task, wrote.get(_end_path(job, task)), cancelled=bool(job.cancelled), now=self._clock())
            tasks = tuple(over if one.index == task.index else one for one in job.tasks)
            changed[job.id] = msgspec.structs.replace(job, tasks=tasks)

    async def _not_there(self, target: Target, job: Job, look: Look) -> None:
        """A job that was sent, and that its scheduler does not show: sent again once that is safe."""
        if not target.local and (look.began < job.tried + RESEND_AFTER or not self._duty.here):
            return
        if job.id in self.sending:
            return
        if job.cancelled:
            await self._end(job, "cancelled", "")
            return
        again = msgspec.structs.replace(job, tried=self._clock())
        if await self._records.note_all({job.id: again}):
            return  # somebody else is at it
        try:
            there = await self._send(again)
        except BadRequest as error:
            await self._end(again, "failed", f"{target.name} refused it: {error.detail}")
        except StrataError as error:
            log.warning("a job could not be sent yet", extra={"job": job.id, "reason": str(error)})
        else:
            await self._records.note_all({job.id: msgspec.structs.replace(again, there=there)})

    async def _end(self, job: Job, outcome: str, reason: str) -> None:
        now = self._clock()
        tasks = [
            task
            if task.state == "ended"
            else msgspec.structs.replace(task, state="ended", outcome=outcome, reason=reason, ended=now)
            for task in job.tasks
        ]
        await self._records.note_all({job.id: msgspec.structs.replace(job, tasks=tuple(tasks))})

    async def _cancel_again(self, target: Target, jobs: Iterable[Job]) -> None:
        now = self._clock()
        wanted: dict[str, list[Job]] = {}
        for job in jobs:
            if job.cancelled and job.there and now - self._told.get(job.id, 0.0) > AGAIN:
                current = self._records.find(job.id)
                if current is not None and not current.ended:
                    wanted.setdefault(job.account, []).append(job)
        for account, found in wanted.items():
            self._told |= {job.id: now for job in found}
            try:
                await target.scheduler.cancel(account, [job.there for job in found])
            except StrataError as error:
                log.warning("jobs could not be ended yet", extra={"account": account, "reason": str(error)})

    # -- what is over

    async def _forget(self) -> None:
        """Forget jobs that ended long ago, or that are too many; a batch at a time, the oldest first."""
        if not self._duty.here:
            return
        now = self._clock()
        self._told = {ident: at for ident, at in self._told.items() if now - at < 10 * AGAIN}
        while True:
            ended = self._index.ended
            settings = self._fleet.section(JobSettings)  # as they are now: the file may have been read again
            too_many = len(ended) - settings.kept_most
            before = now - settings.retention
            gone = [ident for n, (at, ident) in enumerate(ended[:_FORGET]) if at < before or n < too_many]
            if not gone or await self._records.note_all(dict.fromkeys(gone)):
                return
            await asyncio.sleep(0)


async def _grouped(jobs: Sequence[Job], seen: Iterable[JobSeen]) -> Mapping[str, list[JobSeen]]:
    """What is said of each job, by its id: known by its key, or by what its scheduler calls it."""
    known: dict[str, str] = {}
    called: dict[str, str] = {}
    for number, job in enumerate(jobs):
        if number % _QUICK_TURN == 0:
            await asyncio.sleep(0)
        known[job.id] = job.account
        if job.there:
            called[job.there] = job.id
    found: dict[str, list[JobSeen]] = {}
    for number, one in enumerate(seen):
        if number % _QUICK_TURN == 0:
            await asyncio.sleep(0)
        ident = one.key if one.key in known else called.get(one.id) or called.get(_TASK.split(one.id)[0])
        # Anybody can put another's key on a job of their own.
        if ident is not None and one.account in ("", known[ident]):
            found.setdefault(ident, []).append(one)
    return found


def _name(job: Job, task: Task) -> str:
    return f"{job.id} {task.index}"


def _end_path(job: Job, task: Task) -> str:
    return f"{job.folder}/{END}" + ("" if task.index is None else f".{task.index}")
