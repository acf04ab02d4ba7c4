"""What is kept of many samples when the samples themselves are not looked at: a summary for each node.

Summaries of neighbouring times can be put together, and together they say what the samples would have said: the energy
of an hour is the sum of its minutes and of the short bridges between them. So one ``Fold`` makes a minute of its
seconds, an hour of its minutes, and the answer to a question of all of these.

Between two samples of a gauge its value is taken to lie between the two; across more than ``hold`` seconds it is not
taken to be anything (a gap). What a counter rose by is right however long nobody looked.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from strata.power.series.records import Counts, Flags, Floats, Metric

Matrix = npt.NDArray[np.float64]

FIELDS = (
    "n", "first_t", "last_t", "first_v", "last_v", "joules", "covered", "error",
    "low", "high", "gaps", "resets", "wraps", "absurd", "flat", "spread", "rough", "fro", "step",
)  # fmt: skip
"""For a gauge, ``low`` and ``high`` are its least and greatest value; for a counter, of its rise in a second.
``joules`` is the integral of a gauge over time, and the rise of a counter; ``flat`` the longest time without change;
``spread`` by how much the samples of one row differ in time. ``error`` is what a gauge's integral may be wrong by at
worst; ``rough`` sums up the squares of its changes (times how long each took), and ``fro`` how far each took back the
one before it: the two tell what it is likely to be wrong by. ``step`` is what all changes of value are whole
multiples of: how finely it is told; 0 where it has not changed."""

ROW = {name: index for index, name in enumerate(FIELDS)}

WRAPS = (2**32 / 1e3, 2.0**32, 2**64 / 1e9, 2**64 / 1e6, 2**64 / 1e3)
"""Joules at which counters begin anew: 32 bits of mJ and J; 64 bits of nJ, µJ and mJ. A source whose counter has
another end (RAPL says its own) unwraps it before it hands it on."""

_NEAR = 7 / 8
"""Who falls from below this part of the end did not wrap."""


def blank(nodes: int) -> Matrix:
    """The summary of nothing: ``[field, node]``."""
    found = np.zeros((len(FIELDS), nodes))
    for name in ("first_t", "last_t", "first_v", "last_v"):
        found[ROW[name]] = np.nan
    found[ROW["low"]], found[ROW["high"]] = np.inf, -np.inf
    return found


class Fold:
    """Puts samples and summaries together, oldest first. Only what lies from ``start`` to ``end`` counts."""

    def __init__(
        self, metric: Metric, nodes: int, hold: float, start: float = -math.inf, end: float = math.inf
    ) -> None:
        self.summary = blank(nodes)
        self._metric = metric
        self._hold = hold
        self.start, self.end = start, end
        self._run = np.zeros(nodes)
        self._even: float | None = None
        """When all nodes have their last sample at one instant: that instant."""
        self._newest = -math.inf
        self._swing = np.zeros(nodes)
        """By how much a gauge has last changed, times how long that took."""
        self.edge = np.zeros(nodes)
        """Of ``joules``: what is in stretches between two samples of which a part lies outside."""
        self.edge_time = np.zeros(nodes)
        self.edge_error = np.zeros(nodes)
        """Of ``error``: what those stretches, and summaries that lie partly outside, may be wrong by."""

    def row(self, time: float, values: Floats, spread: float = 0.0) -> None:
        """One sample of each node, NaN where there is none."""
        self._row(time, values.astype(np.float64, copy=False), spread)

    def _row(self, time: float, values: Matrix, spread: float) -> None:
        valid = np.isfinite(values)
        if time <= self._newest:
            # Somebody else saw the same.
            valid &= ~(self.summary[ROW["last_t"]] >= time)
        self._newest = max(self._newest, time)
        if not self._metric.counter:
            sane = (values >= self._metric.floor) & (values <= self._metric.ceiling)
            if self._inside(time):
                self.summary[ROW["absurd"]] += valid & ~sane
            valid &= sane
        whole = bool(valid.all())
        if whole and self._even is not None and self.start <= self._even < time < self.end:
            self._even_step(time, values, spread)
        else:
            self._bridge(np.full(len(values), time), values, valid, spread)
        self._take(time, values, valid, whole, spread)

    def absorb(self, more: Matrix) -> None:
        """A summary that lies within start and end, of later samples (of a node that has later ones already: none)."""
        mine = self.summary
        valid = (more[ROW["n"]] > 0) & ~(more[ROW["first_t"]] <= mine[ROW["last_t"]])
        self._bridge(more[ROW["first_t"]], more[ROW["first_v"]], valid, more[ROW["spread"]])
        for name in ("n", "joules", "covered", "error", "gaps", "resets", "wraps", "rough", "fro"):
            mine[ROW[name]] += np.where(valid, more[ROW[name]], 0.0)
        self._swing[valid] = 0.0  # what changed last is not kept
        # There may have been absurd values only.
        mine[ROW["absurd"]] += np.where(valid | (more[ROW["n"]] == 0), more[ROW["absurd"]], 0.0)
        self._extend(more, valid)
        low, high = more[ROW["low"]], more[ROW["high"]]
        still = valid & ((high <= 0.0) if self._metric.counter else (low == high))
        length = more[ROW["last_t"]] - more[ROW["first_t"]]
        self._run = np.where(still, self._run + length, np.where(valid, 0.0, self._run))
        longest = np.maximum(np.where(valid, more[ROW["flat"]], 0.0), self._run)
        np.maximum(mine[ROW["flat"]], longest, out=mine[ROW["flat"]])

    def border(self, more: Matrix, *, before: bool) -> None:
        """A summary that lies outside: only its sample that is next to start or end is of use."""
        time, value = ("last_t", "last_v") if before else ("first_t", "first_v")
        valid = (more[ROW["n"]] > 0) & ~(more[ROW[time]] <= self.summary[ROW["last_t"]])
        self._bridge(more[ROW[time]], more[ROW[value]], valid, more[ROW["spread"]])
        self._even = None
        self._newest = float(np.max(more[ROW[time]], initial=self._newest, where=valid))
        np.copyto(self.summary[ROW["last_t"]], more[ROW[time]], where=valid)
        np.copyto(self.summary[ROW["last_v"]], more[ROW[value]], where=valid)

    def absorb_part(self, more: Matrix) -> None:
        """A summary that lies partly outside: of its samples nothing is left, so its part is taken in proportion. What
        that may be wrong by is known from its least and greatest value."""
        mine = self.summary
        first, last = more[ROW["first_t"]], more[ROW["last_t"]]
        length = last - first
        inside = np.minimum(last, self.end) - np.maximum(first, self.start)
        valid = (more[ROW["n"]] > 0) & (length > 0) & (inside > 0) & ~(first <= mine[ROW["last_t"]])
        part = np.divide(inside, length, out=np.zeros_like(length), where=valid)
        covered = np.where(valid, part * more[ROW["covered"]], 0.0)
        low, high = more[ROW["low"]], more[ROW["high"]]
        wide = np.where(valid, (high - low) * covered, 0.0)
        if self._metric.counter:
            # Within one interval of a counter its rise may have come at any time.
            wide += np.where(valid, 2.0 * high * np.minimum(self._hold, length), 0.0)
        for name in ("n", "gaps", "resets", "wraps", "absurd", "rough", "fro"):
            mine[ROW[name]] += np.where(valid, more[ROW[name]], 0.0)
        self.edge_error += wide
        mine[ROW["joules"]] += np.where(valid, part * more[ROW["joules"]], 0.0)
        mine[ROW["error"]] += np.where(valid, more[ROW["error"]], 0.0) + wide
        mine[ROW["covered"]] += covered
        self._extend(more, valid)

    def flags(self) -> Flags:

        def count(name: str) -> Counts:
            return np.asarray(self.summary[ROW[name]], np.int64)

        flat = self.summary[ROW["flat"]]
        stuck = np.where(flat >= self._metric.stuck_after, flat, 0.0).astype(np.int64)
        return Flags(
            gaps=count("gaps"),
            resets=count("resets"),
            wraps=count("wraps"),
            absurd=count("absurd"),
            stuck=stuck,
            differs=np.zeros_like(stuck),
        )

    def means(self) -> Matrix:
        """The mean of a gauge over the time that is covered, or its only sample; a counter's last value."""
        mine = self.summary
        if self._metric.counter:
            return np.asarray(mine[ROW["last_v"]])
        covered = mine[ROW["covered"]]
        inside = mine[ROW["n"]] > 0
        return np.where(
            covered > 0, mine[ROW["joules"]] / np.maximum(covered, 1e-9), np.where(inside, mine[ROW["last_v"]], np.nan)
        )

    def _inside(self, time: float) -> bool:
        return self.start <= time < self.end

    def _even_step(self, time: float, values: Matrix, spread: float) -> None:
        """``_bridge`` for the usual case: all nodes, one interval, none of it cut."""
        assert self._even is not None
        mine, step = self.summary, time - self._even
        rise = values - mine[ROW["last_v"]]
        if self._metric.counter:
            if rise.min(initial=0.0) < 0.0 or rise.max(initial=0.0) > self._metric.ceiling * step:
                self._bridge(np.full(len(values), time), values, np.ones(len(values), bool), spread)
                return
            mine[ROW["joules"]] += rise
            mine[ROW["covered"]] += step
            self._rates(rise / step)
            self._steps(rise)
        elif step > self._hold:
            mine[ROW["gaps"]] += 1
        else:
            still = rise == 0.0
            self._steps(rise)
            self._swings(rise * step)
            swing = np.abs(rise, out=rise)
            mine[ROW["error"]] += swing * (step / 2 + spread)
            mine[ROW["joules"]] += (values + mine[ROW["last_v"]]) * (step / 2)
            mine[ROW["covered"]] += step
            self._still(still, step)
            return
        self._still(rise == 0.0, step)

    def _still(self, still: npt.NDArray[np.bool_], step: float) -> None:
        if not still.any():
            self._run[:] = 0.0
            return
        self._run += step
        self._run *= still
        np.maximum(self.summary[ROW["flat"]], self._run, out=self.summary[ROW["flat"]])

    def _bridge(self, times: Matrix, values: Matrix, valid: npt.NDArray[np.bool_], spread: float | Matrix) -> None:
        """What lies between the last sample of each node and this one."""
        mine, metric = self.summary, self._metric
        before, since = mine[ROW["last_v"]], mine[ROW["last_t"]]
        begin, stop = np.maximum(since, self.start), np.minimum(times, self.end)
        length = stop - begin
        between = valid & (length > 0)
        if not between.any():
            return
        step, rise = times - since, values - before
        cut = length < step
        held = between & (step <= self._hold)
        self._steps(np.where(between & (rise > 0.0 if metric.counter else held), rise, 0.0))
        if metric.counter:
            rise = self._unwrapped(rise, step, before, between)
            risen = between & (rise >= 0.0) & (rise <= metric.ceiling * step)
            mine[ROW["absurd"]] += between & (rise > metric.ceiling * step)
            known = risen & (~cut | held)
            mine[ROW["gaps"]] += risen & ~known
            share = np.divide(length, step, out=np.zeros_like(step), where=known)
            joules = np.where(known, rise * share, 0.0)
            error = np.where(known & cut, rise * np.maximum(share, 1.0 - share), 0.0)
            rate = np.divide(rise, step, out=np.full_like(step, np.nan), where=risen)
            self._rates(rate)
        else:
            known = held
            mine[ROW["gaps"]] += between & ~held
            middle = np.divide((begin + stop) / 2 - since, step, out=np.zeros_like(step), where=known)
            joules = np.where(known, (before + rise * middle) * length, 0.0)
            error = np.where(known, np.abs(rise) * (np.where(cut, 1.0, 0.5) * length + spread), 0.0)
            self._swings(np.where(known & ~cut, rise * step, 0.0), valid)
        mine[ROW["joules"]] += joules
        mine[ROW["error"]] += error
        edge = known & cut
        self.edge += np.where(edge, joules, 0.0)
        self.edge_time += np.where(edge, length, 0.0)
        self.edge_error += np.where(edge, error, 0.0)
        mine[ROW["covered"]] += np.where(known, length, 0.0)
        still = between & (rise == 0.0)
        self._run = np.where(still, self._run + length, np.where(valid, 0.0, self._run))
        np.maximum(mine[ROW["flat"]], self._run, out=mine[ROW["flat"]])

    def _unwrapped(self, rise: Matrix, step: Matrix, before: Matrix, between: npt.NDArray[np.bool_]) -> Matrix:
        """A fall that is just what a wrap would look like is one; any other is a reset."""
        fell = between & (rise < 0.0)
        if not fell.any():
            return rise
        rise = rise.copy()
        for end in WRAPS:
            near = fell & (before < end) & (before >= end * _NEAR)
            wrapped = near & (rise + end >= 0.0) & (rise + end <= self._metric.ceiling * step)
            rise[wrapped] += end
            self.summary[ROW["wraps"]] += wrapped
            fell &= ~wrapped
        self.summary[ROW["resets"]] += fell
        return rise

    def _swings(self, swing: Matrix, valid: npt.NDArray[np.bool_] | None = None) -> None:
        """Note by how much a gauge changed in a stretch, times how long that took."""
        self.summary[ROW["rough"]] += swing * swing
        self.summary[ROW["fro"]] -= swing * self._swing
        self._swing = swing if valid is None else np.where(valid, swing, self._swing)

    def _steps(self, rise: Matrix) -> None:
        """Learn how finely values are told: by what all changes can be divided."""
        step, quantum = self.summary[ROW["step"]], self._metric.quantum
        open_ = np.flatnonzero((rise != 0.0) & (step != quantum))
        if len(open_):
            units = np.rint(np.stack([step[open_], rise[open_]]) / quantum).astype(np.int64)
            step[open_] = np.gcd(units[0], units[1]) * quantum

    def _rates(self, rate: Matrix) -> None:
        np.fmin(self.summary[ROW["low"]], rate, out=self.summary[ROW["low"]])
        np.fmax(self.summary[ROW["high"]], rate, out=self.summary[ROW["high"]])

    def _take(self, time: float, values: Matrix, valid: npt.NDArray[np.bool_], whole: bool, spread: float) -> None:
        """Note the newest sample of each node."""
        mine = self.summary
        if self._inside(time):
            mine[ROW["n"]] += valid
            if not self._metric.counter:
                seen = values if whole else np.where(valid, values, np.nan)
                self._rates(seen)
            if spread:
                np.maximum(mine[ROW["spread"]], spread, out=mine[ROW["spread"]])
        fresh = valid & np.isnan(mine[ROW["first_t"]]) if self._even is None else None
        if fresh is not None and fresh.any():
            mine[ROW["first_t"]][fresh] = time
            mine[ROW["first_v"]][fresh] = values[fresh]
        if whole:
            mine[ROW["last_t"]] = time
            mine[ROW["last_v"]] = values
        else:
            mine[ROW["last_t"]][valid] = time
            np.copyto(mine[ROW["last_v"]], values, where=valid)
        self._even = time if whole else None

    def _extend(self, more: Matrix, valid: npt.NDArray[np.bool_]) -> None:
        mine = self.summary
        self._even = None
        self._newest = float(np.max(more[ROW["last_t"]], initial=self._newest, where=valid))
        np.fmin(mine[ROW["low"]], np.where(valid, more[ROW["low"]], np.inf), out=mine[ROW["low"]])
        np.fmax(mine[ROW["high"]], np.where(valid, more[ROW["high"]], -np.inf), out=mine[ROW["high"]])
        np.maximum(mine[ROW["spread"]], np.where(valid, more[ROW["spread"]], 0.0), out=mine[ROW["spread"]])
        self._steps(np.where(valid, more[ROW["step"]], 0.0))
        fresh = valid & np.isnan(mine[ROW["first_t"]])
        for first, last in (("first_t", "last_t"), ("first_v", "last_v")):
            np.copyto(mine[ROW[first]], more[ROW[first]], where=fresh)
            np.copyto(mine[ROW[last]], more[ROW[last]], where=valid)
