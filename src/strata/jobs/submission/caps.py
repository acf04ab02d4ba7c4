"""Caps of nodes for the jobs that run on them: set when a job is seen to run, put back when it runs no more.

A node of which a job's cap may be in force has a record: whose it is, how far it has come, and the cap that stood
before. It is written before the node is told anything, and goes when the node is as it was; so whoever comes next,
after a kill between any two steps, goes on from there. The record is the node's and not the job's: the next job on the
node takes it over, and with it the cap that stood before the first of them. A cap that somebody else has set since
stays.

Caps are set as those of everybody are (``strata.power.capping``), by the one controller that sets them for all.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from strata.core.errors import NotFound, StrataError
from strata.core.units import show_watts
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.fleet.tasks import all_cancelled, beside
from strata.jobs.submission.records import Job
from strata.jobs.submission.targets import Target
from strata.platform.workload.cluster import Cluster, jobs_in_words
from strata.platform.workload.service import WorkloadService
from strata.power.capping.operations import OVERTAKEN, CapOperations
from strata.power.capping.terms import CapChange
from strata.store.records import Records

log = logging.getLogger(__name__)

AGAIN, AGAIN_MOST = 30.0, 3600.0
"""Seconds until a node that did not do as it was told is told again; doubles up to the second."""
_ATTEMPTS = 10
_ROUNDED = 0.02
"""By which part of it a BMC may set another cap than it was told."""
_SILENT = "its BMC does not say which cap it has"


class NodeCap(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was capped for a job, or is about to be. Watts; 0: no cap."""

    job: str
    index: int | None
    """Which task, of an array."""
    state: Literal["asked", "set", "kept", "refused", "returning"]
    """``asked``: may be set or not. ``kept``: there was nothing to lower. ``refused``: the node does not take it.
    ``returning``: is being put back. Of ``kept`` and ``refused`` nothing has to be put back."""
    watts: float
    """The job's cap."""
    found: float
    """The cap that the node had when it was asked."""
    before: float
    """The cap that it gets back."""

    def is_ours(self, now: float) -> bool:
        """Whether the cap that the node has now comes of this, and is not somebody else's. Under a ramp a cap moves in
        steps, so that all on the way is."""
        if self.state == "set":
            return now == self.watts
        if self.state in ("kept", "refused"):
            return False
        ends = sorted(map(_free, (self.watts, self.before if self.state == "returning" else self.found)))
        return ends[0] <= _free(now) <= ends[1]


class Held(NamedTuple):
    """A node on which a job runs that asks for a cap."""

    job: str
    task: int | None
    watts: float
    there: str
    """The job, as its scheduler calls it."""
    node: str
    """The node, as the scheduler calls it."""
    cluster: Cluster
    began: float


class Wanted(NamedTuple):
    """Who is to be capped."""

    held: Mapping[int, Held]
    """By uid."""
    stay: frozenset[tuple[str, int | None]]
    """Tasks that are about to end, or of which nobody knows how they are: their nodes stay as they are."""
    strange: Mapping[str, Mapping[str, str]]
    """Job → nodes that are not ours, and why they are not capped."""


class Trial(NamedTuple):
    """Something that did not come about."""

    job: str
    uid: int
    back: bool
    """Whether a cap was to be put back."""


class JobCaps:
    """For all jobs of the store. Acts only where the power layer runs, on the controller that sets caps for all."""

    def __init__(self, fleet: Fleet, jobs: Records[Job], every: float) -> None:
        self._fleet = fleet
        self._jobs = jobs
        self.kept = fleet.records(NodeCap, kind="job-cap")
        """By uid."""
        self._asking: dict[str, Job] = {}
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: dict[Trial, tuple[float, float]] = {}
        """What is tried again, when, and after how many seconds that is."""
        self._rounds = Recurring("caps of jobs", self.look, lambda: every, trouble="nodes are not capped for jobs")
        self.clear = self._asking.clear

    async def start(self) -> None:
        """Begin, once all jobs are known."""
        await self.kept.start()
        await self._rounds.start()

    async def stop(self) -> None:
        """Stop, wherever it is. Caps stay as they are."""
        await self._rounds.stop()
        await all_cancelled(self._tasks)
        await self.kept.stop()

    def take(self, ident: str, job: Job | None) -> None:
        """A job came, changed, or (None) went."""
        if job is not None and job.document.resources.power is not None and not job.ended:
            self._asking[ident] = job
        elif self._asking.pop(ident, None) is None:
            return
        self._rounds.soon()

    async def against(self, target: Target, watts: int | None) -> str:
        """Why no job is held to a power there (None: to any); empty: it can be."""
        workloads = self._fleet.services.find(WorkloadService)
        if workloads is None or target.name not in workloads.specs:
            return f"{target.kind} cannot limit the power that a job draws"
        caps = self._fleet.services.find(CapOperations)
        if caps is None:
            return "nodes are capped by the power layer, which does not run here"
        if why := caps.set_by():
            return f"{why}, and not for jobs"
        try:
            cluster = workloads.cluster(target.name)
            look = await cluster.recent()
        except StrataError as error:
            return f"it does not answer: {error}"
        uids = np.array([uid for one in look.nodes if (uid := self._uid(cluster.own(one))) >= 0], np.int64)
        if not len(uids):
            return f"none of the nodes of {target.name} is one of Strata's, and others it cannot cap"
        least = float(np.min(caps.least(uids)))  # NaN where it is not known of one
        if watts is not None and watts < least:
            return f"no node of {target.name} takes a cap below {show_watts(least)}"
        return ""

    # -- rounds

    async def look(self) -> None:
        """Begin with whatever is to be done, side by side, and wait for none of it."""
        caps = self._fleet.services.find(CapOperations)
        if caps is None or not caps.here or not (self._asking or self.kept.all):
            return
        wanted = self._wanted()
        there = {(cap.job, int(name)) for name, cap in self.kept.all.items()}
        there |= {(held.job, uid) for uid, held in wanted.held.items()}
        self._later = {trial: when for trial, when in self._later.items() if trial[:2] in there}
        for job, nodes in wanted.strange.items():
            await self._tell(job, nodes)
        back: dict[str, dict[int, NodeCap]] = {}
        for name, cap in self.kept.all.items():
            if (
                int(name) not in wanted.held
                and (cap.job, cap.index) not in wanted.stay
                and self._due(Trial(cap.job, int(name), True))
            ):
                back.setdefault(cap.job, {})[int(name)] = cap
        on: dict[str, dict[int, Held]] = {}
        for uid, held in wanted.held.items():
            mine = self.kept.find(str(uid))
            done = mine is not None and (mine.job, mine.index) == held[:2] and mine.state != "asked"
            if not done and self._due(Trial(held.job, uid, False)):
                on.setdefault(held.job, {})[uid] = held
        for job, those in back.items():
            self._begin(job, those, self._put_back(caps, job, those), back=True)
        for job, these in on.items():
            self._begin(job, these, self._cap(caps, job, these), back=False)

    def _wanted(self) -> Wanted:
        workloads = self._fleet.services.find(WorkloadService)
        held: dict[int, Held] = {}
        stay: set[tuple[str, int | None]] = set()
        strange: dict[str, dict[str, str]] = {}
        for job in self._asking.values():
            power = job.document.resources.power
            assert isinstance(power, int)
            try:
                cluster = workloads.cluster(job.target) if workloads is not None else None
            except NotFound:
                cluster = None
            for task in job.tasks:
                if task.state in ("ending", "unknown") or (cluster is None and task.state != "ended"):
                    stay.add((job.id, task.index))
                for node in task.nodes if task.state == "running" and cluster is not None else ():
                    assert cluster is not None
                    one = Held(job.id, task.index, float(power), task.there, node, cluster, task.began or 0.0)
                    uid = self._uid(cluster.own(node))
                    if uid < 0:
                        strange.setdefault(job.id, {})[node] = "it is no node of Strata's"
                    elif uid not in held or held[uid].began <= one.began:  # whose end nobody has seen yet began earlier
                        held[uid] = one
        return Wanted(held, frozenset(stay), strange)

    def _begin(self, job: str, uids: Iterable[int], work: Coroutine[Any, Any, None], *, back: bool) -> None:
        mine = set(uids)
        self._busy |= mine

        async def guarded() -> None:
            try:
                await work
            except StrataError as error:
                log.warning("nodes could not be capped for a job", extra={"reason": str(error)})
                self._wait(job, mine, back=back)
            except Exception:
                log.exception("nodes could not be capped for a job")
                self._wait(job, mine, back=back)
            finally:
                self._busy -= mine
                self._rounds.soon()

        beside(self._tasks, guarded(), name="caps of a job")

    def _due(self, trial: Trial) -> bool:
        at, _ = self._later.get(trial, (0.0, 0.0))
        return trial.uid not in self._busy and at <= self._fleet.controller.clock.now()

    def _wait(self, job: str, uids: Iterable[int], *, back: bool = False) -> None:
        now = self._fleet.controller.clock.now()
        for trial in (Trial(job, uid, back) for uid in uids):
            _, waited = self._later.get(trial, (0.0, 0.0))
            wait = min(AGAIN_MOST, 2 * waited) or AGAIN
            self._later[trial] = now + wait, wait

    # -- a job runs

    async def _cap(self, caps: CapOperations, job: str, nodes: Mapping[int, Held]) -> None:
        """Cap nodes for a job that runs on them."""
        alone = await self._alone(job, nodes)
        earlier = {
            cap.job for uid in alone if (cap := self.kept.find(str(uid))) and cap.state in ("asked", "returning")
        }
        if not all([await caps.withdraw(_author(one), alone) for one in earlier]):
            self._wait(job, alone)  # it could still set what it was to set
            return
        uids = np.array(sorted(alone), np.int64)
        if not len(uids):
            return
        asked: dict[int, NodeCap] = {}
        settled: dict[int, NodeCap] = {}
        why: dict[int, str] = {}
        figures = zip(
            uids.tolist(),
            (await caps.read(uids)).tolist(),
            caps.least(uids).tolist(),
            caps.most(uids).tolist(),
            strict=True,
        )
        for uid, now, least, most in figures:
            if math.isnan(now):
                why[uid] = _SILENT
                continue
            cap = _next(self.kept.find(str(uid)), nodes[uid], now, most)
            if cap.watts < least and cap.state == "asked" and cap.watts != cap.before:
                why[uid] = f"it takes no cap below {show_watts(least)}"
                cap = _refused(cap)
            (asked if cap.state == "asked" else settled)[uid] = cap
        self._wait(job, set(why) - set(settled))
        these = np.array(list(asked), np.int64)
        if len(these) and (full := caps.no_room(these, np.array([cap.watts for cap in asked.values()]))):
            why |= dict.fromkeys(asked, full)
            self._wait(job, asked)
            asked = {}
        await self._write(settled)
        asked = {uid: asked[uid] for uid in await self._write(asked)}
        if asked:
            why |= await self._ask(caps, job, asked)
        await self._tell(job, {nodes[uid].node: why.get(uid, "") for uid in alone})

    async def _ask(self, caps: CapOperations, job: str, asked: Mapping[int, NodeCap]) -> Mapping[int, str]:
        """Have nodes capped whose records say so; why not, by uid."""
        uids = np.array(list(asked), np.int64)
        watts = np.array([cap.watts for cap in asked.values()])
        became = await caps.ask_for(_author(job), [CapChange(control="node", uids=uids, watts=watts)])
        now = dict(zip(uids.tolist(), (await caps.read(uids)).tolist(), strict=True))
        news: dict[int, NodeCap] = {}
        for uid, cap in asked.items():
            if uid not in became.failed:
                state: Literal["kept", "set"] = "kept" if cap.watts == cap.before else "set"
                # As the node has it: it may have rounded it. What is further off is somebody else's already.
                rounded = abs(now[uid] - cap.watts) <= _ROUNDED * cap.watts
                news[uid] = msgspec.structs.replace(cap, state=state, watts=now[uid] if rounded else cap.watts)
            elif uid not in became.unsure:
                news[uid] = _refused(cap)
        self._wait(job, set(asked) - set(news))
        await self._write(news)
        return became.failed

    async def _alone(self, job: str, nodes: Mapping[int, Held]) -> set[int]:
        """Those that no other job is on, as their workload manager says now."""
        found: set[int] = set()
        told: dict[str, str] = {}
        cluster = next(iter(nodes.values())).cluster
        look = await cluster.now()
        for uid, held in nodes.items():
            seen = look.nodes.get(held.node)
            others = [one for one in (seen.jobs if seen is not None else ()) if one != held.there]
            if others:
                told[held.node] = f"it is not the job's alone: {jobs_in_words(others)}"
            elif seen is not None and seen.jobs:
                found.add(uid)
        self._wait(job, set(nodes) - found)
        await self._tell(job, told)
        return found

    # -- a job runs no more

    async def _put_back(self, caps: CapOperations, job: str, nodes: Mapping[int, NodeCap]) -> None:
        """Give nodes the caps back that stood before, where nobody has set another since."""
        author = _author(job)
        if not await caps.withdraw(author, [uid for uid, cap in nodes.items() if cap.state == "asked"]):
            self._wait(job, nodes, back=True)
            return
        if await caps.under_way(author, [uid for uid, cap in nodes.items() if cap.state == "returning"]):
            self._wait(job, [uid for uid, cap in nodes.items() if cap.state == "returning"], back=True)
            nodes = {uid: cap for uid, cap in nodes.items() if cap.state != "returning"}
        uids = np.array(list(nodes), np.int64)
        news: dict[int, NodeCap | None] = {}
        there = (self._fleet.registry.indices_of(uids) >= 0).tolist()
        ruled = bool(caps.set_by())  # a policy gives each node its cap now
        for uid, now, known in zip(nodes, (await caps.read(uids)).tolist(), there, strict=True):
            cap = nodes[uid]
            if ruled or not known or cap.state in ("kept", "refused"):
                news[uid] = None
            elif math.isnan(now):
                self._wait(job, (uid,), back=True)
            elif not cap.is_ours(now) or (now == cap.before and cap.state != "asked"):
                news[uid] = None
            else:  # what was asked for and has not come yet may be on its way: a later request is the one that counts
                news[uid] = msgspec.structs.replace(cap, state="returning", watts=now)
        written = await self._write(news)
        back = {uid: new for uid in written if (new := news[uid]) is not None}
        if not back:
            return
        change = CapChange(
            control="node",
            uids=np.array(list(back), np.int64),
            watts=np.array([cap.before for cap in back.values()]),
        )
        became = await caps.ask_for(author, [change])
        failed = {uid for uid, why in became.failed.items() if why != OVERTAKEN}
        self._wait(job, failed, back=True)
        await self._write(dict.fromkeys(set(back) - failed))

    # -- parts

    async def _write(self, news: Mapping[int, NodeCap | None]) -> list[int]:
        """Keep records (None: remove them); which, of those that nobody else has changed meanwhile."""
        failed = await self.kept.note_all({str(uid): cap for uid, cap in news.items()})
        return [uid for uid in news if str(uid) not in failed]

    async def _tell(self, ident: str, nodes: Mapping[str, str]) -> None:
        """Say with the job which of its nodes are not capped, and why (empty: it is)."""
        for _ in range(_ATTEMPTS):
            job = self._jobs.find(ident)
            if job is None:
                return
            told = {node: why for node, why in {**job.uncapped, **nodes}.items() if why}
            changed = msgspec.structs.replace(job, uncapped=told)
            if told == job.uncapped or not await self._jobs.note_all({ident: changed}):
                return
            await self._jobs.fetch(ident)  # somebody was faster: again, on top of theirs

    def _uid(self, name: str) -> int:
        index = self._fleet.registry.find(name)
        return int(self._fleet.registry.uids[index]) if index >= 0 else -1


def _next(cap: NodeCap | None, held: Held, now: float, most: float) -> NodeCap:
    """What comes of a node that has the cap ``now``, and perhaps a record already: that of an earlier job, or this
    one's from before a restart. Never more than what stood before the first of them."""
    before = cap.before if cap is not None and cap.is_ours(now) else now
    watts = held.watts if held.watts < min(_free(before), most if most > 0 else math.inf) else before
    state: Literal["asked", "set", "kept"] = "asked" if now != watts else "kept" if watts == before else "set"
    return NodeCap(job=held.job, index=held.task, state=state, watts=watts, found=now, before=before)


def _refused(cap: NodeCap) -> NodeCap:
    """It was not set. What an earlier job has left on the node is put back all the same."""
    state: Literal["refused", "set"] = "refused" if cap.found == cap.before else "set"
    return msgspec.structs.replace(cap, state=state, watts=cap.found)


def _free(watts: float) -> float:
    """A cap as a number that can be compared: none is the highest."""
    return watts or math.inf


def _author(job: str) -> str:
    return f"job:{job}"
