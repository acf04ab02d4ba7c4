"""Nodes with energy counters as BMCs have them, looked at as the collector does it; and what they really used.

Groups of nodes that have one of each kind of counter do one job after the other; in each job every node works in a way
of its own: at a steady power, in phases, or to and fro faster than anybody looks. The truth is kept for every tenth of
a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.power.series.records import Energy, Samples
from strata.power.series.series import Series
from strata.virtual.meters import METERS, MIXED, kinds_of

Array = npt.NDArray[np.float64]

BEGIN = 1_699_999_200
"""A whole hour."""
TICK = 0.1
EVERY = 10.0
"""Seconds between two looks at a node."""
HOLD = 66.0
KINDS = {kind: METERS[kind] for kind in kinds_of(MIXED)}


class Job(NamedTuple):
    """A window of one group."""

    nodes: list[int]
    start: float
    end: float


class Metered:
    """``each`` nodes of every kind for ``seconds``: so many groups."""

    def __init__(self, each: int, seconds: float, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.kinds = [kind for _ in range(each) for kind in KINDS]
        self.uids = np.arange(1, len(self.kinds) + 1, dtype=np.int64)
        self.seconds = seconds
        self._ticks = round(seconds / TICK)
        self._starts = [self._schedule() for _ in range(each)]
        self.watts = [self._load(jobs) for jobs in self._starts for _ in KINDS]
        self.joules = [np.concatenate([[0.0], np.cumsum(watts) * TICK]) for watts in self.watts]
        self.looks = [self._looked() for _ in self.kinds]
        self.quiet = [self._silences() if KINDS[kind].quiet else np.empty((0, 2)) for kind in self.kinds]

    def _schedule(self) -> list[tuple[int, int]]:
        """When the jobs of a group begin and end, in ticks."""
        found, at = [], 0
        while at < self._ticks:
            begin = at + int(self.random.exponential(300) / TICK)
            at = begin + int(self.random.exponential(3000) / TICK)
            found.append((min(begin, self._ticks), min(at, self._ticks)))
        return found

    def _load(self, jobs: list[tuple[int, int]]) -> Array:
        """What a node draws: idle for a while, then one of three ways to work."""
        found = np.empty(self._ticks)
        at = 0
        for begin, end in jobs:
            found[at:begin] = self.random.uniform(80, 140)
            found[begin:end] = self.random.uniform(200, 1400) * self._work(end - begin)
            at = end
        ticks = np.arange(self._ticks)
        noise = np.interp(ticks, ticks[::50], self.random.normal(0, self.random.uniform(0.5, 4), len(ticks[::50])))
        return np.maximum(0.0, found + noise)

    def _work(self, ticks: int) -> Array:
        """Parts of a node's full power."""
        way = self.random.integers(4)
        if way < 2:
            return np.ones(ticks)
        if way == 2:
            return self._turns(ticks, self.random.exponential(300, ticks // 1000 + 60), 0.4, 1.0)
        mean, low = self.random.uniform(5.0, 60.0), self.random.uniform(0.5, 0.9)
        turns = self.random.exponential(mean, int(2 * ticks * TICK / mean) + 60)
        return self._turns(ticks, turns, low, low)

    def _turns(self, ticks: int, seconds: Array, low: float, high: float) -> Array:
        """Full power and some of it by turns, or another power each time."""
        lengths = np.maximum(1, (seconds / TICK).astype(int))
        parts = self.random.uniform(low, high, len(lengths))
        if low == high:
            parts[::2] = 1.0
        found = np.repeat(parts, lengths)
        return np.resize(found, ticks)

    def _looked(self) -> Array:
        """When it is looked at: at a steady pace, a bit later at random, in its place of the sweep."""
        sweeps = np.arange(0.0, self.seconds - EVERY, EVERY)
        sweeps += self.random.uniform(0, 0.1 * EVERY, len(sweeps))
        place = self.random.uniform(0, 3)
        times: Array = np.round(sweeps + place + np.abs(self.random.normal(0, 0.1, len(sweeps))), 3)
        return times

    def _silences(self) -> Array:
        begins = np.arange(600.0, self.seconds, 2400.0) + self.random.uniform(0, 1200)
        return np.stack([begins, begins + self.random.uniform(100, 900, len(begins))], axis=1)

    def used(self, node: int, start: float, end: float) -> float:
        """The truth."""
        high, low = self._used_until(node, np.array([end, start])).tolist()
        return float(high - low)

    def _used_until(self, node: int, times: Array) -> Array:
        places = times / TICK
        ticks = np.minimum(places.astype(np.int64), self._ticks - 1)
        found: Array = self.joules[node][ticks] + (places - ticks) * TICK * self.watts[node][ticks]
        return found

    def known(self, node: int, start: float, end: float, *, counted: bool) -> tuple[float, float]:
        """The truth about what is known, and for how long it is: what lies between looks that are not too far apart; to
        a counter also what lies between any two looks within the time."""
        times = self._seen(node)
        begins, ends = np.maximum(times[:-1], start), np.minimum(times[1:], end)
        whole = (begins == times[:-1]) & (ends == times[1:])
        known = (ends > begins) & ((np.diff(times) <= HOLD) | (whole & counted))
        joules = self._used_until(node, ends) - self._used_until(node, begins)
        return float(joules[known].sum()), float((ends - begins)[known].sum())

    def _seen(self, node: int) -> Array:
        times = self.looks[node]
        for begin, end in self.quiet[node]:
            times = times[(times < begin) | (times > end)]
        return times

    def samples(self) -> Iterator[list[Samples]]:
        """What the series is given, minute by minute: of each tenth of a second, what was seen in it."""
        rows: list[tuple[float, int, float, float]] = []
        for node, kind in enumerate(self.kinds):
            times, meter = self._seen(node), KINDS[kind]
            shown = meter.shows(self._used_until(node, times))
            if math.isfinite(meter.sticks):
                stops = self.random.uniform(0, self.seconds / 2)
                shown = np.where(times < stops, shown, shown[np.searchsorted(times, stops)])
            power = np.round(self.watts[node][np.minimum((times / TICK).astype(int), self._ticks - 1)])
            rows += zip(times.tolist(), [node] * len(times), power.tolist(), shown.tolist(), strict=True)
        rows.sort()
        batch: list[Samples] = []
        minute = 0.0
        tenths: dict[int, list[tuple[float, int, float, float]]] = {}
        for row in rows:
            tenths.setdefault(int(row[0] * 10), []).append(row)
        for seen in tenths.values():
            time = BEGIN + seen[0][0]
            by_uid = sorted((int(self.uids[node]), power, joules) for _, node, power, joules in seen)
            uids = np.array([uid for uid, _, _ in by_uid], dtype=np.int64)
            for metric, column in (("power", 1), ("energy", 2)):
                values = np.array([one[column] for one in by_uid], dtype=np.float64)
                batch.append(Samples(metric=metric, time=time, uids=uids, values=values))
            if seen[0][0] >= minute + 60:
                yield batch
                batch, minute = [], minute + 60
        yield batch

    def jobs(self, count: int) -> list[Job]:
        """Windows of a minute to four hours, most of them short; every other one begins when a group begins to work."""
        found = []
        size = len(KINDS)
        for turn in range(count):
            group = int(self.random.integers(len(self._starts)))
            length = float(np.exp(self.random.uniform(np.log(60), np.log(min(14_400, self.seconds - 300)))))
            start = float(self.random.uniform(120, self.seconds - length - 120))
            if turn % 2:
                begins = np.array([begin * TICK for begin, _ in self._starts[group]])
                later = begins[(begins > 120) & (begins < self.seconds - length - 120)]
                start = float(self.random.choice(later)) if len(later) else start
            found.append(Job(list(range(size * group, size * (group + 1))), start, start + length))
        return found


class Verdict(NamedTuple):
    """What was told of a job, and the truth about what it was told of."""

    kind: str
    told: float
    truth: float
    error: float
    known: float
    counted: bool


async def verdicts(series: Series, world: Metered, count: int) -> list[Verdict]:
    """Ask for so many jobs, and judge what is told of each node. Of one of which nothing is known, nothing is told."""
    found = []
    for job in world.jobs(count):
        used = await series.energy(world.uids[job.nodes], BEGIN + job.start, BEGIN + job.end)
        found += [_judged(world, job, used, place) for place in np.flatnonzero(used.known > 0).tolist()]
    return found


def _judged(world: Metered, job: Job, used: Energy, place: int) -> Verdict:
    node, counted, known = job.nodes[place], bool(used.counted[place]), float(used.known[place])
    truth, length = world.used(node, job.start, job.end), job.end - job.start
    if known < 0.9999:
        # A look may be told to be some tenths of a second earlier than it was: which side of an end it is on is seen
        # from the time that is known.
        parts = [
            world.known(node, job.start + late, job.end + later, counted=counted)
            for late in (0.0, 1.0)
            for later in (0.0, 1.0)
        ]
        truth, _ = min(parts, key=lambda part: abs(part[1] - known * length))
    return Verdict(world.kinds[node], float(used.joules[place]), truth, float(used.error[place]), known, counted)
