"""The jobs that run, as a power policy sees them: on which nodes, since when, and what a node of theirs drew.

Averages come from the energy of all nodes in four windows; what a job drew over its life is summed up as time passes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strata.core import intset
from strata.power.accounting.intervals import Intervals
from strata.power.accounting.records import Run
from strata.power.capping.terms import Column, Rows
from strata.power.policies.view import Jobs
from strata.power.queue.records import RunningJob
from strata.power.series.records import Uids
from strata.power.series.series import Series
from strata.power.telemetry.columns import placed

MOST = 20_000
"""Jobs that run at one time."""
WINDOWS = (3600.0, 1800.0, 900.0, 60.0)
SHORTEST = 1.0
"""Seconds below which a time holds no samples."""
LONGEST = 366 * 86_400.0
"""Seconds that a job can have been running."""


class RunningJobs:
    """Keeps what jobs used so far between two looks."""

    def __init__(self, series: Series, intervals: Intervals) -> None:
        self._series = series
        self._intervals = intervals
        self._lives: dict[tuple[str, float], tuple[float, float]] = {}
        """Joules and node-seconds of each job up to ``_until``."""
        self._until = 0.0

    async def look(self, uids: Uids, now: float, told: Sequence[RunningJob]) -> tuple[Rows, Jobs]:
        """For each node of ``uids`` (ascending) the row of its job, or -1; and the jobs, with what the workload manager
        told of their limits."""
        found = await self._intervals.newest("", now - LONGEST, MOST, running=True)
        job = np.full(len(uids), -1, np.int64)
        runs: list[Run] = []
        for run in reversed(found):  # of two that claim a node the newest has it
            places, there = placed(uids, intset.unpack(run.uids))
            if there.any():
                job[places[there]] = len(runs)
                runs.append(run)
        if not runs:
            return job, no_jobs()
        drawn = await self._drawn(uids, job, runs, now)
        limits = {one.job: one for one in told}
        ends, upcap = drawn.ends.copy(), drawn.upcap.copy()
        for place, run in enumerate(runs):
            if (limit := limits.get(run.job)) is not None:
                ends[place] = np.inf if limit.ends is None else limit.ends
                upcap[place] = np.inf if limit.cap is None else limit.cap
        return job, drawn._replace(ends=ends, upcap=upcap)

    async def _drawn(self, uids: Uids, job: Rows, runs: list[Run], now: float) -> Jobs:
        rows = np.flatnonzero(job >= 0)
        busy, of = uids[rows], job[rows]
        life = await self._life(busy, of, runs, now)
        age = now - np.array([run.start for run in runs])
        windows = []
        for span in WINDOWS:
            joules, seconds = await self._used(busy, of, len(runs), now - span, now)
            # A job that is younger than the window has what it drew since it began.
            windows.append(np.where(age < span, life, _watts(joules, seconds)))
        unknown, never = np.full(len(runs), np.nan), np.full(len(runs), np.inf)
        # From what nobody has measured nothing is taken away: it counts as the most that there is.
        life, hour, half_hour, quarter, minute = (np.where(np.isnan(one), np.inf, one) for one in (life, *windows))
        return Jobs(now - age, never, unknown, unknown, never, life, hour, half_hour, quarter, minute)

    async def _used(self, uids: Uids, job: Rows, count: int, start: float, end: float) -> tuple[Column, Column]:
        """Joules and measured node-seconds, by job."""
        used = await self._series.energy(uids, start, end)
        of = job[np.searchsorted(uids, used.uids)]
        seconds = used.known * (end - start)
        joules = np.bincount(of, np.nan_to_num(used.joules), count)
        return joules.astype(np.float64), np.bincount(of, seconds, count).astype(np.float64)

    async def _life(self, uids: Uids, job: Rows, runs: list[Run], now: float) -> Column:
        """Watts of a node since each job began."""
        since = min(self._until or now, now)
        joules, seconds = np.zeros(len(runs)), np.zeros(len(runs))
        if now - since >= SHORTEST:
            joules, seconds = await self._used(uids, job, len(runs), since, now)
        else:
            now = since
        kept: dict[tuple[str, float], tuple[float, float]] = {}
        for place, run in enumerate(runs):
            known = self._lives.get((run.job, run.start))
            if known is None:
                known = await self._before(run, since)
            joules[place] += known[0]
            seconds[place] += known[1]
            kept[run.job, run.start] = float(joules[place]), float(seconds[place])
        self._lives, self._until = kept, now
        return _watts(joules, seconds)

    async def _before(self, run: Run, until: float) -> tuple[float, float]:
        """Of a job that is new to us."""
        if until - run.start < SHORTEST:
            return 0.0, 0.0
        used = await self._series.energy(intset.unpack(run.uids), run.start, until)
        return float(np.nansum(used.joules)), float(used.known.sum()) * (until - run.start)


def no_jobs() -> Jobs:
    return Jobs(*[np.empty(0)] * 10)


def _watts(joules: Column, seconds: Column) -> Column:
    """NaN where nothing was measured."""
    found: Column = np.divide(joules, seconds, out=np.full(len(joules), np.nan), where=seconds > 0)
    return found
