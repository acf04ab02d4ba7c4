"""The newest samples of one metric, in memory: chunks that still change, and the newest value of each node.

Knows nothing of files. Samples come in any order; a chunk is closed when samples are so much newer that what is still
to come for it is too late to be taken.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from strata.power.series.records import WIDEST, Counts, Floats, Metric, Samples, Times, Uids

SECONDS = 60
"""A chunk's length."""


def summed(metric: Metric, values: Floats) -> tuple[Times, Counts]:
    """The sum of each row over the nodes that have a value that can be, and how many these are."""
    if metric.counter:
        return np.zeros(len(values)), np.zeros(len(values), np.int64)
    sane = (values >= metric.floor) & (values <= metric.ceiling)
    return np.where(sane, values, 0).sum(axis=1, dtype=np.float64), sane.sum(axis=1, dtype=np.int64)


class OpenChunk:
    """A minute: one row for each second, one column for each node of the book that it belongs to."""

    def __init__(self, start: int, width: int, kind: npt.DTypeLike) -> None:
        self.start = start
        self.times = np.full(SECONDS, np.nan)
        self.spread = np.zeros(SECONDS)
        self.values = np.full((SECONDS, width), np.nan, kind)
        self._summed = np.zeros(SECONDS, bool)
        self._sums = np.zeros(SECONDS)
        self._counts = np.zeros(SECONDS, np.int64)

    @property
    def end(self) -> int:
        """The first second after it."""
        return self.start + SECONDS

    def put(self, time: float, columns: npt.NDArray[np.intp] | slice, values: Floats) -> None:
        """Samples of one instant; what is known already is replaced, by what is known only."""
        row = math.floor(time) - self.start
        self._summed[row] = False
        if math.isnan(self.times[row]):
            self.times[row] = time
            self.values[row, columns] = values
            return
        first, last = self.times[row], self.times[row] + self.spread[row]
        self.times[row] = min(first, time)
        self.spread[row] = max(last, time) - self.times[row]
        held = self.values[row, columns]
        self.values[row, columns] = np.where(np.isnan(values), held, values)

    def widen(self, width: int) -> None:
        wider = np.full((SECONDS, width), np.nan, self.values.dtype)
        wider[:, : self.values.shape[1]] = self.values
        self.values = wider

    def rows(
        self, columns: npt.NDArray[np.intp], start: float = -math.inf, end: float = math.inf
    ) -> tuple[Times, Times, Floats]:
        """Times, their spread, and the values of these columns, of the seconds from ``start`` to before ``end``."""
        there = self._there(start, end)
        if len(columns) and int(columns[-1]) - int(columns[0]) == len(columns) - 1 and (np.diff(columns) == 1).all():
            found = self.values[there, columns[0] : columns[-1] + 1]
        else:
            found = self.values[np.ix_(there, columns)]
        return self.times[there], self.spread[there], found

    def sums(self, metric: Metric, start: float = -math.inf, end: float = math.inf) -> tuple[Times, Times, Counts]:
        """Times, and the sum over all nodes at each and over how many that is."""
        there = self._there(start, end)
        for row in there[~self._summed[there]]:
            # Row by row: mostly there is but one new one since somebody asked.
            (self._sums[row],), (self._counts[row],) = summed(metric, self.values[row : row + 1])
            self._summed[row] = True
        return self.times[there], self._sums[there], self._counts[there]

    def _there(self, start: float, end: float) -> npt.NDArray[np.intp]:
        return np.flatnonzero((self.times >= start) & (self.times < end))


class OpenMetric:
    """All that is open of one metric."""

    def __init__(self, metric: Metric, lateness: float) -> None:
        self.metric = metric
        self.chunks: dict[int, OpenChunk] = {}
        self.sealed_until = 0
        """Before this second, nothing changes any more."""
        self.newest = -math.inf
        self.late = 0
        self.nonsense = 0
        self._lateness = lateness
        self._kind = np.float64 if metric.counter else np.float32
        self._uids = np.empty(0, np.int64)
        self._ordered = np.empty(0, np.int64)
        self._order = np.empty(0, np.intp)
        self._last_t = np.empty(0)
        self._last_v = np.empty(0)
        self._given: Uids | None = None
        self._given_columns: npt.NDArray[np.intp] | slice = slice(0, 0)

    @property
    def uids(self) -> Uids:
        """All nodes that were ever seen, by column."""
        return self._uids

    def take(self, samples: Samples) -> Samples | None:
        """Put samples in their place; what was taken, rounded to the metric's quantum."""
        if math.floor(samples.time) < self.sealed_until:
            self.late += len(samples.uids)
            return None
        values = self._rounded(samples.values)
        columns = self._columns(samples.uids)
        start = math.floor(samples.time) // SECONDS * SECONDS
        chunk = self.chunks.get(start)
        if chunk is None:
            chunk = self.chunks[start] = OpenChunk(start, self._room(), self._kind)
        chunk.put(samples.time, columns, values)
        self.newest = max(self.newest, samples.time)
        newer = ~(self._last_t[columns] > samples.time) & ~np.isnan(values)
        self._last_t[columns] = np.where(newer, samples.time, self._last_t[columns])
        self._last_v[columns] = np.where(newer, values, self._last_v[columns])
        return Samples(metric=samples.metric, time=samples.time, uids=samples.uids, values=values)

    def ripe(self, *, all_of_them: bool = False) -> list[OpenChunk]:
        """Chunks that may be closed now, oldest first."""
        horizon = math.inf if all_of_them else self.newest - self._lateness
        return [chunk for start, chunk in sorted(self.chunks.items()) if chunk.end <= horizon]

    def places(self, uids: Uids) -> npt.NDArray[np.intp]:
        """The column of each uid, -1 where it was never seen."""
        if not len(self._uids):
            return np.full(len(uids), -1, np.intp)
        at = np.minimum(np.searchsorted(self._ordered, uids), len(self._ordered) - 1)
        return np.where(self._ordered[at] == uids, self._order[at], -1)

    def sorted_columns(self) -> npt.NDArray[np.intp]:
        return self._order

    def newest_of(self, uids: Uids) -> tuple[Times, Times]:
        """Time and value of the newest sample of each node."""
        places = self.places(uids)
        if not len(self._uids):
            return np.full(len(uids), np.nan), np.full(len(uids), np.nan)
        seen = places >= 0
        return np.where(seen, self._last_t[places], np.nan), np.where(seen, self._last_v[places], np.nan)

    def _rounded(self, values: Floats) -> Floats:
        wide = values.astype(np.float64, copy=False)
        wild = np.abs(wide) > WIDEST
        if wild.any():
            self.nonsense += int(wild.sum())
            wide = np.where(wild, np.nan, wide)
        return (np.rint(wide / self.metric.quantum) * self.metric.quantum).astype(self._kind)

    def _columns(self, uids: Uids) -> npt.NDArray[np.intp] | slice:
        """Where these nodes are. Mostly the same nodes come again and again, and mostly all of them."""
        if uids is self._given or (self._given is not None and np.array_equal(uids, self._given)):
            return self._given_columns
        places = self.places(uids)
        fresh = uids[places < 0]
        if len(fresh):
            self._grow(fresh)
            places = self.places(uids)
        whole = len(places) and (np.diff(places) == 1).all()
        found = slice(int(places[0]), int(places[-1]) + 1) if whole else places
        # A copy: the caller may use the array again for other nodes.
        self._given, self._given_columns = uids.copy(), found
        return found

    def _grow(self, fresh: Uids) -> None:
        at = np.searchsorted(self._ordered, fresh)
        self._order = np.insert(self._order, at, np.arange(len(self._uids), len(self._uids) + len(fresh)))
        self._ordered = np.insert(self._ordered, at, fresh)
        self._uids = np.concatenate([self._uids, fresh])
        more = np.full(len(fresh), np.nan)
        self._last_t, self._last_v = np.concatenate([self._last_t, more]), np.concatenate([self._last_v, more])
        for chunk in self.chunks.values():
            if chunk.values.shape[1] < len(self._uids):
                chunk.widen(self._room())

    def _room(self) -> int:
        """Columns to make: some more than there are nodes, so that new ones do not each cost a copy."""
        return len(self._uids) + len(self._uids) // 8 + 16
