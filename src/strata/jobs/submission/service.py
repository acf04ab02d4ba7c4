"""What can be asked of jobs: submitted once, listed, read, ended; each by whoever it belongs to.

A job is kept before it is sent. Whether it arrived is known by its scheduler's answer, or by the next look that finds
its key; only a look that does not find it allows another try.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from strata.core.errors import BadRequest, Conflict, Denied, NotFound, Refused, StrataError, Unavailable
from strata.core.texts import Out
from strata.fleet.access.principal import Principal, Right, Verb
from strata.fleet.fleet import Fleet
from strata.jobs.accounts import LocalAccounts
from strata.jobs.containers.cache import Cache, Image
from strata.jobs.containers.preparation import User
from strata.jobs.containers.records import check as check_container
from strata.jobs.containers.runtimes import check_abilities, runtime
from strata.jobs.environments.records import container, numbered
from strata.jobs.environments.service import EnvironmentService
from strata.jobs.local.executor import LocalExecutor
from strata.jobs.local.slots import Slots
from strata.jobs.projects.service import ProjectService
from strata.jobs.resources import Asked, over
from strata.jobs.settings import JobSettings
from strata.jobs.submission.broker import Candidate, Choice, choose
from strata.jobs.submission.caps import JobCaps
from strata.jobs.submission.energy import JobEnergy
from strata.jobs.submission.follower import JobFollower
from strata.jobs.submission.index import Age, JobIndex
from strata.jobs.submission.patterns import called, filled
from strata.jobs.submission.records import (
    Considered,
    Job,
    JobDocument,
    JobLine,
    JobPage,
    JobPlan,
    JobView,
    LogPart,
    QueueView,
    Stream,
    TargetView,
    Task,
)
from strata.jobs.submission.scheduler_containers import image_of, without_container
from strata.jobs.submission.script import There, script_of
from strata.jobs.submission.targets import LOG_MOST, Target, cannot, check
from strata.jobs.submission.views import line, view
from strata.jobs.targets.records import JobTarget
from strata.jobs.targets.service import LOCAL, TargetService
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService, runner_of
from strata.schedulers.jobs import APART_FOLDER, After, State, Work
from strata.schedulers.kinds import JOB_KINDS, open_job_scheduler
from strata.schedulers.runner import Account, Place, Runner

PREFIX = "jobs/"
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID = 12
_LONGEST_WAIT = 60.0
_HERE = (sys.executable, "-m", "strata.cli")
"""Our own command, on this machine."""
_FOLLOW = 1.0
"""Seconds between two looks at a log that is followed."""

_decode = msgspec.msgpack.Decoder(Job).decode


class JobEvent(Out, frozen=True, kw_only=True):
    """A job as it was after a change. Resume after ``revision``."""

    revision: int
    job: JobLine


class JobService:
    """Jobs of this store. ``start`` finds what runs on this machine, and follows all that are under way."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._settings = fleet.section(JobSettings)
        self._accounts = fleet.of(LocalAccounts)
        self._clock = fleet.controller.clock.wall
        self._index = JobIndex()
        self._projects = fleet.services.find(ProjectService)
        self._waiting: dict[str, asyncio.Event] = {}
        self._stopping = False
        self.records = fleet.records(
            Job,
            kind="job",
            prefix=PREFIX,
            listed_by="strata job list",
            changed=self._changed,
            cleared=self._clear,
        )
        self.targets: dict[str, Target] = {}
        """What runs jobs, in the order in which it is thought of."""
        self._executor: LocalExecutor | None = None
        if self._settings.local:
            self._executor = LocalExecutor(
                fleet.settings.state_dir / "jobs", Slots.of(self._settings), self._accounts, clock=self._clock
            )
            here = Runner(Place())
            self.targets[LOCAL] = Target(LOCAL, "local", self._executor, here, local=True, clock=self._clock)
        self._specs: dict[str, WorkloadSpec | JobTarget] = {}
        self._follower = JobFollower(
            fleet, self.records, self._index, self.targets, self._accounts, self._settings, self.send
        )
        self._energy = JobEnergy(fleet, self.records, self._index)
        self._caps = JobCaps(fleet, self.records, float(self._settings.poll))
        fleet.services.held.append(self._let_go)

    async def start(self) -> None:
        """Load the jobs, find what runs here, and follow them."""
        await self.records.start()
        if self._executor is not None:
            await self._executor.start()
            self._executor.changed = self._follower.soon
        await self._refresh()
        await self._follower.start()
        await self._energy.start()
        await self._caps.start()

    async def stop(self) -> None:
        """Follow them no more. What runs goes on."""
        self._let_go()
        await self._caps.stop()
        await self._energy.stop()
        await self._follower.stop()
        for target in self.targets.values():
            await target.close()
        if self._executor is not None:
            await self._executor.stop()
        await self.records.stop()

    async def _refresh(self) -> None:
        """Have a target for whatever is connected, as it is reached now."""
        workloads, beside = self._fleet.services.find(WorkloadService), self._fleet.services.find(TargetService)
        specs: dict[str, WorkloadSpec | JobTarget] = dict(beside.connected) if beside is not None else {}
        specs |= dict(workloads.specs) if workloads is not None else {}
        for name in [name for name, spec in self._specs.items() if specs.get(name) != spec]:
            del self._specs[name]
            await self.targets.pop(name).close()
        for name, spec in specs.items():
            if name in self.targets:
                continue
            if isinstance(spec, JobTarget):
                assert beside is not None
                scheduler, runner = beside.open(name, spec)
                self.targets[name] = Target(name, spec.spec.kind, scheduler, runner, clock=self._clock)
            elif spec.kind in JOB_KINDS:
                self.targets[name] = self._open(name, spec)
            else:
                continue
            self._specs[name] = spec
        await self._follower.refresh()

    def _open(self, name: str, spec: WorkloadSpec) -> Target:
        runner = runner_of(self._fleet, spec)
        return Target(name, spec.kind, open_job_scheduler(spec.kind, runner), runner, clock=self._clock)

    # -- submitting

    async def submit(self, who: Principal, document: JobDocument, *, key: str = "", rerun_of: str = "") -> JobView:
        """A job of ``who``. The same ``key`` again is the same job, however often the request is sent."""
        check(document, self._settings.array_most)
        document, assumed = await self._surrounded(who, document)
        owner = self._owner(who, document)
        ident = _keyed(owner, key) if key else _random()
        if key and (there := await self.records.fetch(ident)) is not None:
            return self._same(there, document)
        account = await self._account(who, document)
        choice = await self._choose(who, document, account, ident)
        if not choice.candidates:
            raise choice.refusal()
        first = choice.candidates[0]
        job = self._new(ident, owner, account, document, first, choice, assumed, key=key, rerun_of=rerun_of)
        detail = {"target": job.target, "account": job.account, "name": document.name or ""}
        self._follower.sending.add(ident)
        try:
            with self._booking(document, account):
                await self.records.put(who.name, ident, job, expected=0, action="submit", detail=detail)
            job = await self._send_first(who, job, choice)
        except Conflict:
            there = await self.records.fetch(ident)
            if there is None or not key:
                raise
            return self._same(there, document)
        finally:
            self._follower.sending.discard(ident)
        return self._view(job)

    async def plan(self, who: Principal, document: JobDocument) -> JobPlan:
        """Where a job would go, why, and what would be run there. Nothing is submitted."""
        check(document, self._settings.array_most)
        document, assumed = await self._surrounded(who, document)
        account = await self._account(who, document)
        with self._booking(document, account):
            ident = _random()
        choice = await self._choose(who, document, account, ident, estimate=True)
        best = choice.candidates[0] if choice.candidates else None
        unpacked = await self._unpacked(document)
        script = self._work(who, ident, document, account, best.target, best.queue, unpacked).script if best else ""
        return JobPlan(
            target=best.target.name if best else None,
            queue=best.queue if best else None,
            account=account.name,
            resources=document.resources,
            environment=document.environment,
            assumed=assumed,
            considered=_considered(choice.candidates, choice.refused),
            script=script,
        )

    async def rerun(self, who: Principal, ident: str) -> JobView:
        """The same document as a new job. It waits for no other."""
        job = self._find(who, ident, "read")
        if job.owner != who.name:
            raise Denied("only its owner runs a job again", where=f"job {ident}")
        own = None if job.document.environment else job.document.container  # else it comes from there again
        said = {name: value for name, value in job.document.resources.said.items() if name not in job.assumed}
        document = msgspec.structs.replace(
            job.document, after=(), held=False, account=None, container=own, resources=Asked(**said)
        )
        return await self.submit(who, document, rerun_of=job.id)

    async def send(self, job: Job) -> str:
        """Hand a job to its target, in the name of its account; its id there."""
        account = await self._accounts.named(job.account)
        target = self._target(job)
        unpacked = await self._unpacked(job.document)
        work = self._work(None, job.id, job.document, account, target, job.queue, unpacked)
        await target.prepare(account, job.folder)
        return await target.scheduler.submit(work)

    async def _send_first(self, who: Principal, job: Job, choice: Choice) -> Job:
        """Try the targets in turn: the next where one refuses; none where nobody knows whether one has taken it."""
        refused = list(choice.refused)
        for number, candidate in enumerate(choice.candidates):
            if number:
                job = msgspec.structs.replace(
                    job,
                    target=candidate.target.name,
                    kind=candidate.target.kind,
                    queue=candidate.queue,
                    stdout=_kept_at(filled(job.document, job.id, job.account), job.folder, candidate.target),
                    tried=self._clock(),
                )
                await self.records.put(who.name, job.id, job, action="submit", detail={"target": job.target})
            try:
                there = await self.send(job)
            except BadRequest as error:
                hint = f" ({error.hint})" if error.hint else ""
                refused.append(candidate.considered(f"it refused the job: {error.detail}{hint}", taken=False))
                continue
            except StrataError as error:
                why = f"it is not known yet whether it has the job: {error}"
                return await self._note(job, considered=(candidate.considered(why, taken=True), *refused))
            return await self._note(job, there=there, considered=_considered(choice.candidates[number:], refused))
        await self.records.delete(who.name, job.id, action="refuse")
        fields = {**choice.fields, **{one.target.name: "target" for one in choice.candidates}}
        raise Choice(candidates=(), refused=refused, fields=fields).refusal()

    async def _note(self, job: Job, **became: Any) -> Job:
        """Keep what became of it, on top of what others kept meanwhile."""
        while True:
            changed = msgspec.structs.replace(job, **became)
            if not await self.records.note_all({job.id: changed}):
                return changed
            found = await self.records.fetch(job.id)
            if found is None:
                return changed
            job = found

    async def _choose(
        self, who: Principal, document: JobDocument, account: Account, ident: str, *, estimate: bool = False
    ) -> Choice:
        await self._refresh()
        names = (document.target,) if document.target else tuple(self.targets)
        if document.project and not self._counts(document.project) and names == (LOCAL,):
            # A workload manager may know it; this machine knows what is set here.
            hint = "strata project list; administrators: strata project set"
            raise BadRequest(f"there is no project {document.project}", where="project", hint=hint)
        for number, dependency in enumerate(document.after):
            other = self._dependency(who, document, number)
            if other.ended and not _holds(dependency.what, other):
                told = f"job {other.id} has ended, and did not {'fail' if dependency.what == 'failed' else 'end well'}"
                raise BadRequest(told, where=f"after[{number}]")

        def bound(target: Target) -> str:
            for number, _ in enumerate(document.after):
                other = self._dependency(who, document, number)
                if not other.ended and other.target != target.name:
                    return f"it waits for job {other.id}, which is at {other.target}"
                if not other.ended and not other.there:
                    return f"it waits for job {other.id}, which has not arrived there yet"
            return ""

        unpacked = await self._unpacked(document)
        power, against = document.needs.power, {}
        if power is not None:
            against = {name: await self._caps.against(one, power) for name, one in self.targets.items()}

        def work(target: Target, queue: str | None) -> Work:
            if why := against.get(target.name):
                raise BadRequest(why, where="resources.power")
            return self._work(who, ident, document, account, target, queue, unpacked)

        settings = self._fleet.section(JobSettings)  # as they are now: the file may have been read again
        targets = list(self.targets.values())
        now = self._clock()
        return await choose(targets, document, bound=bound, work=work, settings=settings, now=now, estimate=estimate)

    def _dependency(self, who: Principal | None, document: JobDocument, number: int) -> Job:
        """A job that another waits for: one that whoever submits may see."""
        ident = document.after[number].job
        found = self.records.find(ident)
        if found is None or (who is not None and not self._visible(who, found, "read")):
            raise BadRequest(f"there is no job {ident}", where=f"after[{number}].job", hint="strata job list")
        return found

    async def _surrounded(self, who: Principal, document: JobDocument) -> tuple[JobDocument, tuple[str, ...]]:
        """With what its environment comes to now, and a container that its runtime can make; and which of its resources
        the environment says."""
        assumed: tuple[str, ...] = ()
        if document.environment:
            name, number = numbered(document.environment)
            found = await self._fleet.of(EnvironmentService).show(who, name, number)
            if not number and not found.current:
                told = f"no version of {name} has been promoted yet"
                hint = f"name one: {name}@{found.version}; or: strata environment promote {name}"
                raise Refused(told, by="promotion", where="environment", hint=hint)
            resources, assumed = over(document.resources, found.whole.defaults)
            document = msgspec.structs.replace(
                document,
                environment=f"{found.name}@{found.version}",
                resources=resources,
                container=container(found.whole),
                modules=tuple(dict.fromkeys((*found.whole.modules, *document.modules))),
                env=document.env if found.whole.image else {**found.whole.env, **document.env},
            )
        wanted = document.container
        if wanted is None:
            return document, assumed
        if document.resources.accelerators and not wanted.devices:
            wanted = msgspec.structs.replace(wanted, devices=("given",))
        if document.launch != "once":
            wanted = msgspec.structs.replace(wanted, node_tmp=True)
        check_container(wanted)
        check_abilities(runtime(wanted.runtime), wanted)
        return msgspec.structs.replace(document, container=wanted), assumed

    async def _unpacked(self, document: JobDocument) -> Mapping[str, Unpacked]:
        """The document's image in the folders that targets' nodes see, by folder."""
        wanted = document.container
        if wanted is None or runtime(wanted.runtime).abilities.image != "folder":
            return {}
        folders = {spec.images for spec in self._specs.values() if isinstance(spec, WorkloadSpec) and spec.images}
        return {folder: await asyncio.to_thread(_unpacked, folder, wanted.image) for folder in folders}

    def _there(
        self, document: JobDocument, account: Account, target: Target, unpacked: Mapping[str, Unpacked]
    ) -> There:
        """What the job finds at a target. ``BadRequest``: nothing that could start its container."""
        if target.local:
            return There(target.kind, _HERE)
        spec, wanted = self._specs.get(target.name), document.container
        if not isinstance(spec, WorkloadSpec):  # no workload manager's: nobody said what is there
            return There(target.kind)
        if wanted is None or not spec.images:
            return There(target.kind, (spec.strata or "strata",))
        hint = f"strata container pull {wanted.image} --cache {spec.images}, as an administrator"
        if wanted.runtime != "native" or wanted.devices:
            what = f"the runtime {wanted.runtime}" if wanted.runtime != "native" else "devices in containers"
            told = f"nodes of {target.name} have Strata's runner alone, and {what} takes Strata's command there"
            field = "runtime" if wanted.runtime != "native" else "devices"
            raise BadRequest(told, where=f"container.{field}", hint="strata workload connect --strata PATH")
        found = unpacked.get(spec.images)
        if found is None or found.image is None:
            told = f"the image is not in {spec.images}, where nodes of {target.name} have theirs"
            raise BadRequest(told, where="container.image", hint=hint)
        user = User(account.uid, account.gid, account.name, account.home)
        return There(target.kind, (spec.strata or "strata",), found.image, spec.runner, found.mark, user)

    def _work(
        self,
        who: Principal | None,
        ident: str,
        document: JobDocument,
        account: Account,
        target: Target,
        queue: str | None,
        unpacked: Mapping[str, Unpacked],
    ) -> Work:
        document, folder = filled(document, ident, account.name), _folder(account, ident)
        there = self._there(document, account, target, unpacked)
        after: list[tuple[After, str]] = []
        for number, dependency in enumerate(document.after):
            with contextlib.suppress(BadRequest):  # one that is listed no more has ended long ago
                other = self._dependency(who, document, number)
                if not other.ended:
                    after.append((dependency.what, other.there))
        needs, capped = document.needs, False
        if needs.power is not None and isinstance(self._specs.get(target.name), WorkloadSpec):
            # It is Strata that caps its nodes, once it is known which these are.
            needs, capped = msgspec.structs.replace(needs, power=None), True
        apart = target.apart is not None
        image = image_of(document) if apart else ""
        if apart:
            document, folder = without_container(document), APART_FOLDER
        return Work(
            key=ident,
            name=called(document, ident),
            script=script_of(
                msgspec.structs.replace(document, retries=0) if apart else document,
                folder,
                tell_end=not target.local and not apart,
                there=there,
            ),
            account=account.name,
            env={**document.env, "STRATA_JOB_ID": ident},
            workdir=document.workdir or ("" if apart else account.home),
            stdin=document.stdin,
            stdout=_kept_at(document, folder, target),
            stderr=document.stderr,
            image=image,
            retries=document.retries if apart else 0,
            resources=needs,
            whole_nodes=capped,
            array=document.array,
            after=tuple(after),
            queue=queue,
            # This machine counts nothing; a project that Strata counts needs nobody else.
            project=None if target.local and self._counts(document.project) else document.project,
            reservation=document.reservation,
            held=document.held,
            own_image=document.container is not None,
            native=document.native.get(target.kind, ()),
        )

    def _new(
        self,
        ident: str,
        owner: str,
        account: Account,
        document: JobDocument,
        first: Candidate,
        choice: Choice,
        assumed: tuple[str, ...],
        *,
        key: str,
        rerun_of: str,
    ) -> Job:
        now = self._clock()
        state: State = "held" if document.held else "waiting"
        indices: Sequence[int | None] = document.array.indices if document.array else (None,)
        folder, files = _folder(account, ident), filled(document, ident, account.name)
        return Job(
            id=ident,
            document=document,
            owner=owner,
            account=account.name,
            submitted=now,
            target=first.target.name,
            kind=first.target.kind,
            controller=self._fleet.controller.name,
            queue=first.queue,
            tried=now,
            tasks=tuple(Task(index=index, state=state) for index in indices),
            folder=folder,
            stdout=_kept_at(files, folder, first.target),
            stderr=files.stderr or "",
            considered=_considered(choice.candidates, choice.refused),
            assumed=assumed,
            request_key=key,
            rerun_of=rerun_of,
        )

    def _same(self, job: Job, document: JobDocument) -> JobView:
        if job.document != document:
            told = f"this key was used for another job, {job.id}"
            raise Conflict(told, where="Idempotency-Key", hint="use another key for another job")
        return self._view(job)

    def _owner(self, who: Principal, document: JobDocument) -> str:
        if document.account is None:
            return who.name
        if who.role != "admin" or who.scope:
            raise Denied("only an administrator submits for another account", where="account", hint="leave it out")
        return document.account

    async def _account(self, who: Principal, document: JobDocument) -> Account:
        if document.account is not None:
            return await self._accounts.named(document.account)
        return await self._accounts.of(who)

    # -- looking

    def jobs(
        self,
        who: Principal,
        *,
        everybody: bool = False,
        owner: str = "",
        state: str = "",
        target: str = "",
        name: str = "",
        limit: int = 100,
        after: str = "",
    ) -> JobPage:
        """Jobs, newest first: one's own, or everybody's."""
        if (everybody or (owner and owner != who.name)) and not who.may(Right("read", "others-job")):
            where = "all" if everybody else "owner"
            raise Denied(f"the role {who.role} sees its own jobs alone", where=where, hint="leave it out")
        whose = None if everybody and not owner else owner or who.name
        items: list[JobLine] = []
        more = False
        for found in self._index.newest(whose, _place(after)):
            if (
                (state and state not in (found.state, found.outcome))
                or (target and found.target != target)
                or (name and found.name != name)
            ):
                continue
            if len(items) == limit:
                more = True
                break
            items.append(found)
        return JobPage(items=tuple(items), next=f"{items[-1].submitted!r} {items[-1].id}" if more else None)

    def job(self, who: Principal, ident: str) -> JobView:
        """One job."""
        return self._view(self._find(who, ident, "read"))

    async def wait(self, who: Principal, ident: str, timeout: float = 30.0) -> JobView:
        """One job, once it has ended or the time is over."""
        deadline = asyncio.get_running_loop().time() + min(timeout, _LONGEST_WAIT)
        while True:
            job = self._find(who, ident, "read")
            left = deadline - asyncio.get_running_loop().time()
            if job.ended or left <= 0 or self._stopping:
                return self._view(job)
            await self._change_of(ident, left)

    async def events(self, who: Principal, since: int | None, *, everybody: bool) -> AsyncIterator[Sequence[JobEvent]]:
        """Changes of one's own jobs (or of everybody's) after ``since``; without it, those after this call."""
        if everybody:
            who.require(Right("read", "others-job"))
        newest = await self._fleet.store.revision()
        if since is not None and since > newest:
            raise BadRequest(f"the newest revision is {newest}; nothing can be continued after {since}", where="since")
        return self._events(None if everybody else who.name, (newest if since is None else since) + 1)

    async def _events(self, owner: str | None, start: int) -> AsyncIterator[Sequence[JobEvent]]:
        stream = self._fleet.store.watch(PREFIX, start=start)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for events in stream:
                shown = []
                for event in events:
                    job = _decode(event.value) if event.value is not None else None
                    if job is not None and owner in (None, job.owner):
                        shown.append(JobEvent(revision=event.revision, job=line(job)))
                if shown:
                    yield shown

    async def log(
        self, who: Principal, ident: str, *, stream: Stream = "stdout", task: int | None = None, offset: int = 0
    ) -> LogPart:
        """A piece of what a job printed; the next one begins at ``next``."""
        job = self._find(who, ident, "read")
        path = _log_path(job, stream, task)
        over = _over(job, task)  # before the file is read: what comes after that is not the last piece
        account = await self._accounts.named(job.account)
        target = self._target(job)
        if target.apart is not None:
            data = await target.apart.log(account.name, job.there, task, offset, LOG_MOST) if job.there else b""
        else:
            data = await target.read(account, path, offset, LOG_MOST)
        cut = len(data) if over and len(data) < LOG_MOST else _whole(data)
        text = data[:cut].decode(errors="replace")
        return LogPart(text=text, offset=offset, next=offset + cut, end=over and len(data) < LOG_MOST)

    async def follow_log(
        self, who: Principal, ident: str, *, stream: Stream = "stdout", task: int | None = None, offset: int = 0
    ) -> AsyncIterator[Sequence[LogPart]]:
        """All that a job prints, as it comes, until it has ended."""
        self._find(who, ident, "read")
        return self._follow_log(who, ident, stream, task, offset)

    async def _follow_log(
        self, who: Principal, ident: str, stream: Stream, task: int | None, offset: int
    ) -> AsyncIterator[Sequence[LogPart]]:
        while not self._stopping:
            part = await self.log(who, ident, stream=stream, task=task, offset=offset)
            if part.text or part.end:
                yield [part]
            if part.end:
                return
            if part.next == offset:
                await self._change_of(ident, _FOLLOW)
            offset = part.next

    async def target_views(self) -> Sequence[TargetView]:
        """What runs jobs, and its queues."""
        await self._refresh()
        return await asyncio.gather(*map(self._target_view, list(self.targets.values())))

    async def _target_view(self, target: Target) -> TargetView:
        trouble, queues = target.trouble, ()
        try:
            queues = tuple(QueueView.of(queue) for queue in await target.queues())  # type: ignore[assignment]
        except StrataError as error:
            trouble = str(error)
        capped = target.scheduler.ability.whole_nodes and not await self._caps.against(target, None)
        return TargetView(
            name=target.name,
            kind=target.kind,
            answers=not trouble,
            trouble=trouble,
            seen=target.last.began if target.last else None,
            queues=queues,
            cannot=tuple(one for one in cannot(target) if not (one == "power" and capped)),
            limits=self._executor.groups.told if target.local and self._executor is not None else "",
        )

    # -- acting

    async def cancel(self, who: Principal, ident: str) -> JobView:
        """End a job. One that has ended stays as it ended."""
        job = self._find(who, ident, "delete")
        if job.ended:
            return self._view(job)
        changed = await self.records.change(
            who.name, ident, lambda now: now and msgspec.structs.replace(now, cancelled=who.name), action="cancel"
        )
        assert changed is not None
        await self._follower.cancel(changed)
        return self._view(self.records.get(ident))

    async def hold(self, who: Principal, ident: str) -> JobView:
        """Keep a job that has not begun from beginning."""
        return await self._hold(who, ident, held=True)

    async def release(self, who: Principal, ident: str) -> JobView:
        """Let a job begin that was held."""
        return await self._hold(who, ident, held=False)

    async def _hold(self, who: Principal, ident: str, *, held: bool) -> JobView:
        job = self._find(who, ident, "change")
        target = self._target(job)
        if job.ended or not job.there:
            told = "it has ended" if job.ended else f"{job.target} has not confirmed yet that it has the job"
            raise Refused(told, by="job", where=f"job {ident}", hint="look again: strata job show")
        if held and not any(task.state in ("waiting", "held") for task in job.tasks):
            hint = "end it: strata job cancel"
            raise Refused(
                "it has begun, and only a job that has not begun can be held", by="job", where=f"job {ident}", hint=hint
            )
        if not target.scheduler.ability.hold:
            raise BadRequest(f"{target.kind} cannot hold jobs", where=f"job {ident}")
        document = msgspec.structs.replace(job.document, held=held)
        await self.records.change(
            who.name,
            ident,
            lambda now: now and msgspec.structs.replace(now, document=document),
            action="hold" if held else "release",
        )
        act = target.scheduler.hold if held else target.scheduler.release
        await act(job.account, [job.there])
        await self._follower.look(target)
        return self._view(self.records.get(ident))

    # -- parts

    def _find(self, who: Principal, ident: str, verb: Verb) -> Job:
        """A job that the caller may know of; one of somebody else is not there."""
        job = self.records.get(ident)
        if not self._visible(who, job, "read"):
            raise NotFound(f"no such job: {ident}", where="job", hint="list them with: strata job list")
        if job.owner != who.name:
            who.require(Right(verb, "others-job"))
        return job

    def _visible(self, who: Principal, job: Job, verb: Verb) -> bool:
        return job.owner == who.name or who.may(Right(verb, "others-job"))

    def _target(self, job: Job) -> Target:
        target = self.targets.get(job.target)
        if target is None:
            hint = "strata workload list"
            raise Unavailable(f"the target {job.target} is not connected any more", where=f"job {job.id}", hint=hint)
        if target.local and job.controller != self._fleet.controller.name:
            hint = f"ask the controller {job.controller}"
            raise Unavailable(f"it is on the machine of {job.controller}", where=f"job {job.id}", hint=hint)
        return target

    def _view(self, job: Job) -> JobView:
        return view(job, self._index.lines[job.id])

    def _booking(self, document: JobDocument, account: Account) -> contextlib.AbstractContextManager[None]:
        """While its project has room for a job, and keeps it."""
        if self._projects is None:
            return contextlib.nullcontext()
        return self._projects.booking(document, account.name)

    def _counts(self, project: str | None) -> bool:
        return self._projects is not None and self._projects.knows(project)

    def _clear(self) -> None:
        self._index.clear()
        self._caps.clear()
        if self._projects is not None:
            self._projects.clear()

    def _changed(self, ident: str, job: Job | None) -> None:
        self._index.take(ident, job)
        self._caps.take(ident, job)
        if self._projects is not None:
            self._projects.take(ident, job)
        if (event := self._waiting.pop(ident, None)) is not None:
            event.set()

    async def _change_of(self, ident: str, most: float) -> None:
        """Wait until a job changes, for so many seconds at most."""
        event = self._waiting.setdefault(ident, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                await event.wait()

    def _let_go(self) -> None:
        self._stopping = True
        for event in self._waiting.values():
            event.set()
        self._waiting.clear()


class Unpacked(NamedTuple):
    """An image in a folder that nodes see; None: it is not there."""

    image: Image | None
    mark: str = ""
    """On which whoever uses it holds a lock."""


def _unpacked(folder: str, reference: str) -> Unpacked:
    cache = Cache(Path(folder))
    image = cache.named(reference)
    return Unpacked(image, cache.want(image)) if image is not None else Unpacked(None)


def _considered(candidates: Sequence[Candidate], refused: Sequence[Considered]) -> tuple[Considered, ...]:
    """Each target that was thought of: the one that is taken first, then those behind it, then those that refuse."""
    told = []
    for number, one in enumerate(candidates):
        queue = f"; queue {one.queue}: {one.why}" if one.why else ""
        why = (
            "it can run the job, but another target comes first"
            if number
            else f"it can run the job, and comes first{queue}"
        )
        figures = f"; {one.figures.words}" if one.figures is not None else ""
        told.append(one.considered(why + figures, taken=not number))
    return (*told, *refused)


def _holds(what: After, other: Job) -> bool:
    done = all(task.outcome == "done" for task in other.tasks)
    return what in ("started", "ended") or (what == "done") == done


def _random() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_ID))


def _keyed(owner: str, key: str) -> str:
    """The id of the job that comes of a key: the same one, whichever controller is asked."""
    number = int.from_bytes(hashlib.sha256(f"{owner}\0{key}".encode()).digest()[:10], "big")
    digits = []
    for _ in range(_ID):
        number, digit = divmod(number, len(_LETTERS))
        digits.append(_LETTERS[digit])
    return "".join(digits)


def _folder(account: Account, ident: str) -> str:
    return f"{account.home.rstrip('/')}/.strata/jobs/{ident}"


def _kept_at(document: JobDocument, folder: str, target: Target) -> str:
    """Where its output goes; empty: its scheduler keeps it."""
    if target.apart is not None:
        return document.stdout or ""
    return document.stdout or f"{folder}/out{'.%a' if document.array else ''}"


def _log_path(job: Job, stream: Stream, task: int | None) -> str:
    path = job.stderr or job.stdout if stream == "stderr" else job.stdout
    if job.document.array is None:
        if task is not None:
            raise BadRequest("it is no array", where="task")
        return path
    if task not in job.document.array.indices:
        indices = job.document.array.indices
        told = "it is an array: say which of its tasks" if task is None else "it has no such task"
        raise BadRequest(f"{told}, {indices[0]} to {indices[-1]}", where="task", hint="strata job log JOB --task N")
    return path.replace("%a", str(task))


def _over(job: Job, index: int | None) -> bool:
    return all(task.state == "ended" for task in job.tasks if index is None or task.index == index)


def _whole(data: bytes) -> int:
    """How many of the bytes are whole characters: the last may be cut."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < size else len(data)
        if byte < 0x80:
            break
    return len(data)


def _place(after: str) -> Age | None:
    if not after:
        return None
    submitted, _, ident = after.partition(" ")
    try:
        return float(submitted), ident
    except ValueError:
        raise BadRequest("not a cursor of this service", where="cursor") from None
