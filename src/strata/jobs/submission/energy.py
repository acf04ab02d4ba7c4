"""What jobs used of energy, as the power layer measured it on their nodes: looked at once, soon after they have ended.

A node's energy counts whole for each job that ran on it. Of jobs whose nodes nobody measures nothing is kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import msgspec

from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.jobs.submission.index import JobIndex
from strata.jobs.submission.records import Job, Task, Used
from strata.power.accounting.records import Span
from strata.power.accounting.service import SETTLED, PowerJobs
from strata.store.records import Records

LOOK_EVERY = 30.0
AT_ONCE = 200
"""Jobs of one look."""
_BACK = 86_400.0
"""Seconds that are looked back at when the service starts."""
_LATE = 600.0
"""Seconds by which an end may be told later than it was."""
_GAP = 60.0
"""Seconds between two tasks of a job on a node that count as the job's: it held the node for its next task."""
_DIFFERENT = 500
"""Times, each with its nodes, that are asked about for one job at most."""


class JobEnergy:
    """Over all jobs of the store. Asks the power layer, where there is one."""

    def __init__(self, fleet: Fleet, records: Records[Job], index: JobIndex) -> None:
        self._fleet = fleet
        self._records = records
        self._index = index
        self._clock = fleet.controller.clock.wall
        self._since = self._clock() - _BACK
        self._looked: dict[str, float] = {}
        self._looks = Recurring(
            "energy of ended jobs", self.look, lambda: LOOK_EVERY, trouble="energy was not looked at"
        )
        self.start = self._looks.start
        self.stop = self._looks.stop

    async def look(self) -> None:
        """Keep what jobs used that ended long enough ago for their last samples to be there. Whichever controller has
        the samples finds something, and the first that does keeps it."""
        power = self._fleet.services.find(PowerJobs)
        if power is None:
            return
        while batch := self._next(self._clock() - SETTLED):
            found: dict[str, Job | None] = {}
            for job in batch:
                if (used := await _used(power, job)) is not None:
                    found[job.id] = msgspec.structs.replace(job, energy=used)
            await self._records.note_all(found)

    def _next(self, until: float) -> Sequence[Job]:
        """Jobs that ended by then and that were not looked at yet."""
        ended = self._index.ended
        jobs: list[Job] = []
        for at in range(bisect.bisect_left(ended, (self._since, "")), bisect.bisect_left(ended, (until, ""))):
            when, ident = ended[at]
            if ident in self._looked:
                continue
            self._looked[ident] = when
            job = self._records.find(ident)
            if job is not None and job.energy is None:
                jobs.append(job)
            if len(jobs) == AT_ONCE:
                return jobs
        self._since = max(self._since, until - _LATE)
        self._looked = {ident: when for ident, when in self._looked.items() if when >= self._since}
        return jobs


async def _used(power: PowerJobs, job: Job) -> Used | None:
    """None: nothing was measured."""
    places = spans_of(job.tasks)
    if not 0 < len(places) <= _DIFFERENT:
        return None
    joules = error = known = total = 0.0
    for spans, nodes in places.items():
        seconds = len(nodes) * sum(end - start for start, end in spans)
        total += seconds
        summary = await power.drawn_by(nodes, spans)
        if summary is not None:
            joules, error = joules + summary.joules, error + summary.error
            known += summary.known * seconds * summary.nodes / len(nodes)
    return Used(joules=joules, error=error, known=known / total) if known and total else None


def spans_of(tasks: Sequence[Task]) -> Mapping[tuple[Span, ...], list[str]]:
    """When a job had which nodes: times → the nodes that it had then. Tasks of an array that shared a node, or followed
    each other there, had it once."""
    of_node: dict[str, list[Span]] = {}
    for task in tasks:
        if task.began is not None and task.ended is not None and task.ended > task.began:
            for node in task.nodes:
                of_node.setdefault(node, []).append((task.began, task.ended))
    found: dict[tuple[Span, ...], list[str]] = {}
    for node, spans in of_node.items():
        merged: list[Span] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1] + _GAP:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        found.setdefault(tuple(merged), []).append(node)
    return found
