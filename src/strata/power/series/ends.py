"""What the samples at the two ends of a time tell beyond what its summary does.

A counter of tenths of a kilowatt hour is as exact as any at the moments at which it steps, and those are known to
within one look. From the nearest step on, either way, power goes on: so it is known how far past its reading the truth
was, and within which bounds. And how restless power is before and after tells what few samples may have missed.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import Compacted
from strata.power.series.downsample import Matrix
from strata.power.series.reader import Reader
from strata.power.series.records import Floats, Times, Uids

AROUND = 300.0
"""Seconds on either side of an end that are looked through."""
_AT_ONCE = 1024
"""Nodes: what is in memory for each is some tens of kilobytes."""
_NEAR = 90.0
"""Seconds on either side of an end that tell how restless power is there."""
_STEP_STAYS, _RESTLESS = 1 / 12, 0.12
"""The variance of a stretch's energy, by the square of its length: of the square of its own change, if that is one step
at a moment that nobody knows; of the mean square of the changes around it."""

Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Of each node. NaN: not known."""

    joules: Times
    """By how much more was used than the counter rose by, between its first and its last reading."""
    bounds: Matrix
    """What the first and the second reading may be wrong by in that, at most: as their steps are known to one look."""
    variance: Times
    """What power makes that wrong by besides."""
    rough: Times
    """The squares of the changes of power before and after, times how long each took."""
    fro: Times
    """How far each took back the one before it, as in summaries."""
    seconds: Times
    """For how long that is known."""

    @classmethod
    def unknown(cls, nodes: int) -> Ends:
        """That of nobody anything is known."""
        none = np.full(nodes, np.nan)
        return cls(
            joules=none,
            bounds=np.full((2, nodes), np.nan),
            variance=none.copy(),
            rough=np.zeros(nodes),
            fro=np.zeros(nodes),
            seconds=np.zeros(nodes),
        )

    def put(self, places: Places, more: Ends) -> None:
        """Take what is known of the nodes at these places."""
        for name in self.__struct_fields__:
            getattr(self, name)[..., places] = getattr(more, name)


def look_at_ends(counters: Reader, powers: Reader, uids: Uids, step: Times, start: float, end: float) -> Ends:
    """Look at the samples around ``start`` and ``end``; ``step`` is what each counter counts in."""
    found = Ends.unknown(len(uids))
    for first in range(0, len(uids), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        places = np.arange(len(uids))[some]
        try:
            found.put(places, _ends(counters, powers, uids[some], step[some], start, end))
        except Compacted:  # only summaries are left
            break
    return found


def _ends(counters: Reader, powers: Reader, uids: Uids, step: Times, start: float, end: float) -> Ends:
    if end - start <= 2 * AROUND:
        before = after = _Looks(counters, powers, uids, start - AROUND, end + AROUND)
    else:
        before, after = (_Looks(counters, powers, uids, at - AROUND, at + AROUND) for at in (start, end))
    first, last = before.untold(start, step, after=True), after.untold(end, step, after=False)
    changes = np.asarray(before.changes(start - AROUND, start)) + after.changes(end, end + AROUND)
    return Ends(
        joules=last.joules - first.joules,
        bounds=np.stack([first.bound, last.bound]),
        variance=first.variance + last.variance,
        rough=changes[0],
        fro=changes[1],
        seconds=changes[2],
    )


class _Untold(msgspec.Struct, frozen=True, kw_only=True):
    """What was used beyond a reading."""

    joules: Times
    bound: Times
    variance: Times


class _Looks:
    """Looks at some nodes: ``[look, node]``, the looks of each node one after the other, then NaN."""

    def __init__(self, counters: Reader, powers: Reader, uids: Uids, start: float, end: float) -> None:
        times, _, shown = counters.samples(uids, start, end)
        others, _, told = powers.samples(uids, start, end)
        drawn = np.full(shown.shape, np.nan)
        _, mine, theirs = np.intersect1d(np.floor(times), np.floor(others), assume_unique=True, return_indices=True)
        drawn[mine] = told[theirs]
        seen = ~np.isnan(shown)
        order = np.argsort(~seen, axis=0, kind="stable")[: int(seen.sum(axis=0).max(initial=0))]
        self._times = np.take_along_axis(np.where(seen, times[:, None], np.nan), order, axis=0)
        self._watts = np.take_along_axis(drawn, order, axis=0)
        self._length = np.diff(self._times, axis=0)
        self._change = np.diff(self._watts, axis=0)
        self._rise = np.diff(np.take_along_axis(shown, order, axis=0), axis=0)
        self._known = (self._length <= counters.hold) & (self._rise >= 0) & ~np.isnan(self._change)
        for one in (self._length, self._change, self._rise):
            one[~self._known] = 0.0

    def changes(self, start: float, end: float) -> tuple[Times, Times, Times]:
        """Of the stretches between: the squares of changes, what each took back, and the time."""
        with np.errstate(invalid="ignore"):
            inside = self._known & (self._times[:-1] >= start) & (self._times[1:] <= end)
        swing = np.where(inside, self._change * self._length, 0.0)
        return (swing * swing).sum(axis=0), -(swing[1:] * swing[:-1]).sum(axis=0), (self._length * inside).sum(axis=0)

    def untold(self, at: float, step: Times, *, after: bool) -> _Untold:
        """At each node's first reading from ``at`` on (``after``), or at its last one until then."""
        nodes = self._times.shape[1]
        with np.errstate(invalid="ignore"):
            place = (self._times < at).sum(axis=0) if after else (self._times <= at).sum(axis=0) - 1
        looks = (~np.isnan(self._times)).sum(axis=0)
        there = (place >= 0) & (place < looks) & (looks > 1)
        if not there.any():
            nothing = np.full(nodes, np.nan)
            return _Untold(joules=nothing, bound=nothing, variance=nothing)
        watts = np.nan_to_num(self._watts)
        used = np.where(self._known, (watts[1:] + watts[:-1]) / 2 * self._length, 0.0)
        likely = np.maximum(_STEP_STAYS * self._change**2, _RESTLESS * self._restless(at)) * self._length**2
        # From the first look on: what was used more than told, how sure that is, and in how many pieces.
        more, variance, breaks = (_running(one) for one in (used - self._rise, likely, ~self._known))
        # At a look that shows a step, what is beyond it was used since the look before.
        past = np.minimum(step, used + np.abs(self._change) * self._length / 2)
        here = np.where(there, place, 0)
        columns = np.arange(nodes)
        apart = np.abs(variance[1:] - variance[here, columns])
        cost = past * past / 12 + apart
        cost[(self._rise <= 0) | (breaks[1:] != breaks[here, columns])] = np.inf
        best = cost.argmin(axis=0)
        there &= np.isfinite(cost[best, columns])
        beyond = past[best, columns] / 2 + more[here, columns] - more[1:][best, columns]
        return _Untold(
            joules=np.where(there, np.clip(beyond, 0.0, step), np.nan),
            bound=np.where(there, past[best, columns] / 2, np.nan),
            variance=np.where(there, apart[best, columns], np.nan),
        )

    def _restless(self, at: float) -> Times:
        """The mean square of the changes of power near that time."""
        with np.errstate(invalid="ignore"):
            near = self._known & (np.abs(self._times[1:] - at) <= _NEAR)
        count = near.sum(axis=0)
        return np.asarray((self._change**2 * near).sum(axis=0) / np.maximum(count, 1))


def _running(each: Floats | Bools) -> Matrix:
    """Sums up to each look; the first has none before it."""
    return np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])
