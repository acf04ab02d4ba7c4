"""Requests about what jobs used: what a workload manager tells of them, and what that came to.

A caller with a scope sees the jobs all of whose nodes are in it, and tells only of those.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, Denied, NotFound
from strata.core.intset import Runs
from strata.core.nodeset import expand
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.power.accounting.figures import GONE, brief, compared_with, drawn, lost, summed, view
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.records import (
    Drawn,
    Event,
    JobBrief,
    JobPower,
    JobRefused,
    JobsTaken,
    JobsTold,
    Run,
    Span,
    Spans,
    Summary,
)
from strata.power.series.records import Energy, Flags, Times, Uids
from strata.power.series.series import Series
from strata.power.telemetry.columns import PowerColumns
from strata.power.telemetry.sums import ENOUGH, whole

EARLIER = 10
"""Earlier runs that a run is compared with."""
SETTLED = 120.0
"""Seconds after the end of a run when all of its samples are there."""
SUM_UP_EVERY = 30.0
SUM_UP_AT_ONCE = 200
NAMES_AT_MOST = 2_000_000
"""Nodes of all the different nodesets in one request."""
LOOKED_AT = 20_000
"""The newest jobs, among which those of somebody's scope are looked for."""
PEAK_POINTS = 1000
"""Steps of a run in which its highest power is looked for."""
MINUTES = (60, 30, 15, 1)
"""The last ones of a run that a scheduler looks at."""
CAP_POINTS = 100
"""Steps of a run in which the caps of its nodes are looked at."""


class PowerJobs:
    """Answers from ``intervals`` and ``series``. Started, it sums up runs soon after they have ended. ``interval``:
    seconds between two looks at a node. ``columns``: what nodes may draw."""

    def __init__(
        self,
        nodes: Fleet,
        series: Series,
        intervals: Intervals,
        interval: Callable[[], float],
        columns: PowerColumns | None = None,
    ) -> None:
        self._nodes = nodes
        self._columns = columns or PowerColumns()
        self._series = series
        self._intervals = intervals
        self._interval = interval
        self._sums = Recurring("energy of jobs", self._sum_up, lambda: SUM_UP_EVERY, trouble="energy was not summed up")
        self.start = self._sums.start
        self.stop = self._sums.stop
        self._now = nodes.controller.clock.wall

    # -- what is told

    async def tell(self, who: Principal, told: JobsTold) -> JobsTaken:
        """Tell when and where jobs run, as it happens (``events``) or from accounting (``runs``). What is told twice
        counts once."""
        now, unknown = self._now(), 0
        places = await self._places(who, {*(one.nodes for one in told.events), *(one.nodes for one in told.runs)})
        events, runs, refused = list[Event](), list[Run](), list[JobRefused]()
        for event in told.events:
            if event.what == "start" and not event.nodes and not event.apid:
                refused.append(JobRefused(job=event.job, reason="say on which nodes it starts"))
                continue
            uids, lost = places[event.nodes]
            unknown += lost
            if who.scope and not uids:
                await self._check_known(who, event.job, event.apid)
            time = now if event.time is None else event.time
            events.append(Event(**event.named, what=event.what, uids=uids, time=time))
        for run in told.runs:
            uids, lost = places[run.nodes]
            unknown += lost
            if who.scope and not uids:
                raise Denied("none of the nodes of this run is in your scope", where=run.job)
            runs.append(Run(**run.named, uids=uids, start=run.start, end=run.end, unplaced=run.suspended))
        taken = 0
        for note in (
            await self._intervals.tell(events) if events else None,
            await self._intervals.account(runs) if runs else None,
        ):
            if note is not None:
                taken += note.taken
                refused += [JobRefused(job=job, reason=why) for job, why in note.refused]
        return JobsTaken(taken=taken, refused=tuple(refused), unknown_nodes=unknown)

    async def _places(self, who: Principal, nodesets: set[str]) -> dict[str, tuple[Runs, int]]:
        """For each nodeset its uids, and how many of it are no nodes of the fleet. Others have their turn meanwhile."""
        named = await asyncio.to_thread(_expanded, nodesets - {""})
        registry, mask = self._nodes.registry, self._nodes.scope(who)
        found: dict[str, tuple[Runs, int]] = {"": ((), 0)}
        for text, names in named.items():
            indices = np.array([registry.find(name) for name in names], dtype=np.int64)
            known = indices[indices >= 0]
            if mask is not None and (len(known) < len(indices) or not mask[known].all()):
                raise Denied(f"not all of these nodes are in {', '.join(who.scope)}", where="nodes")
            found[text] = (intset.pack(registry.uids[known]), len(indices) - len(known))
            await asyncio.sleep(0)
        return found

    async def _check_known(self, who: Principal, job: str, apid: str) -> None:
        """What is told of a run without its nodes must be told by somebody who may see it."""
        runs = await self._intervals.find(job, apid) or await self._intervals.find(job)
        if runs and not self._visible(who, runs[0]):
            raise NotFound("no such job", where=job)

    # -- questions

    async def jobs(
        self, who: Principal, user: str = "", since: float | None = None, running: bool = False, limit: int = 100
    ) -> Sequence[JobBrief]:
        """Jobs that ran since then (by default: a day ago), the newest first."""
        now = self._now()
        since = now - 86_400 if since is None else since
        # Others' jobs are not there for who has a scope, and must not crowd out its own.
        found = await self._intervals.newest(user, since, LOOKED_AT if who.scope else limit, running=running)
        seen = [run for run in found if self._visible(who, run)]
        return [brief(run, now) for run in seen[:limit]]

    async def job(self, who: Principal, job: str, apid: str = "") -> JobPower:
        """What a job, or an application of it, used: energy, average and highest power, how that is spread over its
        nodes, and against earlier runs of the same user and name."""
        runs = [run for run in await self._intervals.find(job, apid) if self._visible(who, run)]
        if not runs:
            what = f"application {apid!r} of job {job!r}" if apid else f"job {job!r}"
            raise NotFound(f"no energy record of {what}", where="job", hint="list them with: strata energy jobs")
        run, now = runs[0], self._now()
        spans = run.spans(now)
        used = await self._used(run, spans)
        summary = lost(run, used) or summed(run, used, now)
        if run.end is not None and now - run.end > SETTLED and run.summary is None:
            await self._intervals.sum_up(run, summary)
        parts = [] if apid else await self._intervals.applications(job, run.start)
        compared = compared_with(
            summary, [await self._summary(one) for one in await self._intervals.earlier(run, EARLIER)]
        )
        lately, names = await self._drawn(run, spans), self._names(used.uids)
        allocated = await self._allocated(run, spans)
        return await asyncio.to_thread(
            view, run, len(runs), now, used, names, lately[0].most, parts, compared, lately, allocated
        )

    async def ran(self, job: str, apid: str) -> Spans | None:
        """When and where the newest run of a job was, or of an application (whatever its job, where that is not
        said). The caller looks at who asks."""
        found = await (self._intervals.find(job, apid) if job else self._intervals.of_application(apid))
        return Spans(uids=intset.unpack(found[0].uids), spans=found[0].spans(self._now())) if found else None

    async def drawn_by(self, nodes: Sequence[str], spans: Sequence[Span]) -> Summary | None:
        """What nodes used in these times, all together; None: none of them is a node of the fleet. ``nodes`` of the
        answer is how many are. The caller looks at who asks."""
        registry = self._nodes.registry
        indices = np.array([registry.find(name) for name in nodes], dtype=np.int64)
        uids = intset.pack(registry.uids[indices[indices >= 0]])
        if not uids:
            return None
        pauses = tuple((before[1], after[0]) for before, after in itertools.pairwise(spans))
        run = Run(job="0", start=spans[0][0], end=spans[-1][1], uids=uids, pauses=pauses)
        return summed(run, await self._used(run, spans), self._now())

    def _visible(self, who: Principal, run: Run) -> bool:
        mask = self._nodes.scope(who)
        if mask is None:
            return True
        indices = self._nodes.registry.indices_of(intset.unpack(run.uids))
        return bool(len(indices)) and bool((indices >= 0).all()) and bool(mask[indices].all())

    # -- sums

    async def _used(self, run: Run, spans: Sequence[Span]) -> Energy:
        """What each node used in all the times that it ran."""
        uids = intset.unpack(run.uids)
        parts = [await self._series.energy(uids, start, end) for start, end in spans]
        total = sum(end - start for start, end in spans)
        joules, known, error, peak = np.zeros(len(uids)), np.zeros(len(uids)), np.zeros(len(uids)), np.zeros(len(uids))
        counted = np.zeros(len(uids), dtype=np.bool_)
        flags = {name: np.zeros(len(uids), dtype=np.int64) for name in Flags.__struct_fields__}
        for part, (start, end) in zip(parts, spans, strict=True):
            at = np.searchsorted(uids, part.uids)
            joules[at] += np.nan_to_num(part.joules)
            known[at] += part.known * ((end - start) / total)
            error[at] += np.nan_to_num(part.error)
            peak[at] = np.fmax(peak[at], part.peak)
            counted[at] |= part.counted
            for name, counts in flags.items():
                counts[at] += getattr(part.flags, name)
        peak[known == 0] = np.nan
        return Energy(
            uids=uids, joules=joules, known=known, error=error, counted=counted, peak=peak, flags=Flags(**flags)
        )

    async def _together(self, run: Run, spans: Sequence[Span]) -> Times:
        """What all of its nodes drew together, step by step, as far as (nearly) all of them were measured."""
        uids, found = intset.unpack(run.uids), [np.empty(0)]
        for start, end in spans:
            step = whole(max(self._interval(), (end - start) / PEAK_POINTS))
            total = await self._series.total("power", uids, start, end, step=step)
            sums = np.asarray(total.sums, np.float64)
            found.append(sums[total.counts >= ENOUGH * total.counts.max(initial=1)])
        return np.concatenate(found)

    async def _drawn(self, run: Run, spans: Sequence[Span]) -> list[Drawn]:
        """Over its whole time, and over its last minutes."""
        found = [drawn(0, await self._together(run, spans))]
        for minutes in MINUTES:
            since = spans[-1][1] - 60 * minutes if spans else 0.0
            last = [(max(start, since), end) for start, end in spans if end > since]
            found.append(drawn(minutes, await self._together(run, last)))
        return found

    async def _allocated(self, run: Run, spans: Sequence[Span]) -> float | None:
        """Joules that its nodes may have drawn at most. A node without a cap may draw all that it can; so may one whose
        cap changed within a step, for that step."""
        uids = intset.unpack(run.uids)
        most = self._columns.column("most", uids)
        joules = 0.0
        for start, end in spans:
            step = 60.0 * math.ceil(max(1.0, (end - start) / 60 / CAP_POINTS))
            window = await self._series.window("cap", uids, start, end, step=step)
            caps = np.broadcast_to(most, (max(1, len(window.times)), len(uids))).copy()
            if len(window.times) and window.low is not None and window.high is not None:
                at = np.searchsorted(uids, window.uids)
                known = (window.low > 0) & np.isfinite(window.high)
                caps[:, at] = np.where(known, window.high, caps[:, at])
            # Of a time that no cap was looked at, the steps around it tell.
            joules += float(caps.mean(axis=0).sum()) * (end - start)
        return joules if math.isfinite(joules) and spans else None

    async def _summary(self, run: Run) -> Summary:
        if run.summary is not None:
            return run.summary
        now = self._now()
        summary = summed(run, await self._used(run, run.spans(now)), now)
        if run.end is not None and now - run.end > SETTLED:
            await self._intervals.sum_up(run, summary)
        return summary

    async def _sum_up(self) -> None:
        for run in await self._intervals.unsummed(self._now() - SETTLED, SUM_UP_AT_ONCE):
            await self._summary(run)
        await self._intervals.prune(self._now())

    def _names(self, uids: Uids) -> list[str]:
        registry = self._nodes.registry
        indices = registry.indices_of(uids).tolist()
        return [
            registry.names[index] if index >= 0 else f"uid {uid}{GONE}"
            for index, uid in zip(indices, uids.tolist(), strict=True)
        ]


def _expanded(nodesets: set[str]) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    names = 0
    for text in nodesets:
        found[text] = expand(text)
        names += len(found[text])
        if names > NAMES_AT_MOST:
            raise BadRequest(f"more than {NAMES_AT_MOST} nodes in one request", where="nodes", hint="send it in parts")
    return found
