"""The questions to the telemetry, answered from pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import BadRequest
from strata.power.downsample import ROW, Fold
from strata.power.energy import energy_of
from strata.power.series import Counts, Energy, Floats, GroupTotals, Latest, Metric, Times, Total, Uids, Window
from strata.power.series_pieces import Pieces, Sums
from strata.power.series_shelf import LEVELS

MINUTE = LEVELS[0]


def window(pieces: Pieces, uids: Uids | None, start: float, end: float, step: float) -> Window:
    """See ``Series.window``."""
    asked = uids if uids is not None else pieces.uids(start, end)
    if step >= MINUTE:
        return _coarse(pieces, asked, start, end, step)
    times, spread, values = _samples(pieces, asked, start, end)
    fold = Fold(pieces.metric, len(asked), pieces.hold)
    for index, time in enumerate(times):
        fold.row(float(time), values[index], float(spread[index]))
    if uids is None:
        there = ~np.isnan(values).all(axis=0)
        if not there.all():
            return window(pieces, asked[there], start, end, step)
    found = Window(metric=pieces.metric.name, times=times, uids=asked, values=values, flags=fold.flags())
    return _binned(found, pieces.metric, step) if step else found


def total(pieces: Pieces, uids: Uids | None, start: float, end: float, step: float) -> Total:
    """See ``Series.total``."""
    _check_gauge(pieces.metric)
    found = _by_second(pieces.sums(uids, start, end))
    return _in_steps(pieces, uids, found, start, end, step) if step else found.total


def totals(pieces: Pieces, uids: Uids, groups: Counts, start: float, end: float) -> GroupTotals:
    """See ``Series.totals``."""
    _check_gauge(pieces.metric)
    order = np.argsort(groups, kind="stable")
    names, firsts = np.unique(groups[order], return_index=True)
    parts: list[tuple[Times, Times, Counts]] = []
    for rows in pieces.rows(uids, start, end) if len(names) else ():
        values = rows.values[:, order]
        sane = _sane(pieces.metric, values)
        sums = np.add.reduceat(np.where(sane, values, 0), firsts, axis=1, dtype=np.float64)
        parts.append((rows.times, sums, np.add.reduceat(sane, firsts, axis=1, dtype=np.int64)))
    stamps = np.concatenate([np.empty(0), *(times for times, _, _ in parts)])
    seconds, index = np.unique(np.floor(stamps), return_inverse=True)
    times = np.full(len(seconds), np.inf)
    np.minimum.at(times, index, stamps)
    shape = (len(seconds), len(names))
    found = GroupTotals(times=times, groups=names, sums=np.zeros(shape), counts=np.zeros(shape, np.int64))
    at = 0
    for part, sums, counts in parts:
        here = index[at : at + len(part)]
        np.add.at(found.sums, here, sums)
        np.add.at(found.counts, here, counts)
        at += len(part)
    return found


def _check_gauge(metric: Metric) -> None:
    if metric.counter:
        raise BadRequest(
            "counters begin anywhere, so that their sum says nothing", where="metric", hint="ask for the energy"
        )


class _Seconds(msgspec.Struct, frozen=True, kw_only=True):
    total: Total
    whole: npt.NDArray[np.bool_]
    """Where every node that is ever in it is in it."""


def _by_second(parts: Sequence[Sums]) -> _Seconds:
    """Several writers each have their part of a second."""
    if not parts:
        nothing = Total(times=np.empty(0), sums=np.empty(0), counts=np.empty(0, np.int64))
        return _Seconds(total=nothing, whole=np.empty(0, bool))
    times = np.concatenate([part.times for part in parts])
    seconds, index = np.unique(np.floor(times), return_inverse=True)
    firsts = np.full(len(seconds), np.inf)
    np.minimum.at(firsts, index, times)
    sums, counts = np.zeros(len(seconds)), np.zeros(len(seconds), np.int64)
    np.add.at(sums, index, np.concatenate([part.sums for part in parts]))
    np.add.at(counts, index, np.concatenate([part.counts for part in parts]))
    nodes = parts[0].nodes
    same = all(part.nodes is nodes or np.array_equal(part.nodes, nodes) for part in parts)
    return _Seconds(total=Total(times=firsts, sums=sums, counts=counts), whole=(counts == len(nodes)) & same)


def _in_steps(pieces: Pieces, uids: Uids | None, found: _Seconds, start: float, end: float, step: float) -> Total:
    """The sum of the nodes' means. Where every node is in every second of a step, that is the mean of the sums."""
    begins, firsts = np.unique(np.floor(found.total.times / step) * step, return_index=True)
    if not len(begins):
        return found.total
    lengths = np.diff([*firsts, len(found.total.times)])
    sums = np.add.reduceat(found.total.sums, firsts) / lengths
    counts = np.maximum.reduceat(found.total.counts, firsts)
    for index in np.flatnonzero(~np.logical_and.reduceat(found.whole, firsts)):
        begin = float(begins[index])
        part = window(pieces, uids, max(start, begin), min(end, begin + step), step)
        known = _sane(pieces.metric, part.values)
        sums[index] = np.where(known, part.values, 0.0).sum()
        counts[index] = known.sum()
    return Total(times=begins, sums=sums, counts=counts)


def latest(pieces: Pieces, uids: Uids | None, since: float) -> Latest:
    """See ``Series.latest``."""
    parts = pieces.open_parts
    asked = uids if uids is not None else reduce(np.union1d, [part.uids for part in parts], np.empty(0, np.int64))
    times, values = np.full(len(asked), np.nan), np.full(len(asked), np.nan)
    for part in parts:
        when, what = part.newest(asked)
        newer = (when >= since) & ~(times > when)
        times, values = np.where(newer, when, times), np.where(newer, what, values)
    return Latest(uids=asked, times=times, values=values)


def energy(counters: Pieces, powers: Pieces, uids: Uids | None, start: float, end: float) -> Energy:
    """See ``Series.energy``."""
    asked = uids if uids is not None else np.union1d(counters.uids(start, end), powers.uids(start, end))
    return energy_of(asked, start, end, counters.fold(asked, start, end), powers.fold(asked, start, end))


def _coarse(pieces: Pieces, uids: Uids, start: float, end: float, step: float) -> Window:
    """Whole minutes, from summaries."""
    begins = _begins(start, end, step)
    shape = (len(begins), len(uids))
    values, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    whole = Fold(pieces.metric, len(uids), pieces.hold)
    if len(begins):
        for level in LEVELS:
            pieces.heads(level, float(begins[0]), float(begins[-1]) + step)
    for index, begin in enumerate(begins):
        fold = pieces.fold(uids, float(begin), float(begin) + step, bridged=False)
        values[index] = fold.means()
        for into, name in ((low, "low"), (high, "high")):
            bound = fold.summary[ROW[name]]
            into[index] = np.where(np.isfinite(bound), bound, np.nan)
        whole.absorb(fold.summary)
    there = ~np.isnan(values).all(axis=1)
    return Window(
        metric=pieces.metric.name,
        times=begins[there],
        uids=uids,
        values=values[there],
        flags=whole.flags(),
        low=low[there],
        high=high[there],
    )


def _begins(start: float, end: float, step: float) -> Times:
    """Steps begin at whole multiples, so that two questions have the same ones."""
    first = math.floor(start / step)
    return np.arange(first, max(first, math.ceil(end / step)), dtype=np.float64) * step


def _samples(pieces: Pieces, uids: Uids, start: float, end: float) -> tuple[Times, Times, Floats]:
    """One row for each second, out of what several chunks and writers have of it."""
    parts, metric, nodes = list(pieces.rows(uids, start, end)), pieces.metric, len(uids)
    kind = np.float64 if metric.counter else np.float32
    if not parts:
        return np.empty(0), np.empty(0), np.empty((0, nodes), kind)
    stamps = np.concatenate([part.times for part in parts])
    seconds, index = np.unique(np.floor(stamps), return_inverse=True)
    if len(seconds) == len(stamps) and (np.diff(stamps) > 0).all():
        return stamps, np.concatenate([part.spread for part in parts]), np.concatenate([part.values for part in parts])
    times, latest = np.full(len(seconds), np.inf), np.full(len(seconds), -np.inf)
    np.minimum.at(times, index, stamps)
    np.maximum.at(latest, index, stamps + np.concatenate([part.spread for part in parts]))
    values = np.full((len(seconds), nodes), np.nan, kind)
    at = 0
    for part in parts:
        for row in part.values:
            np.copyto(values[index[at]], row, where=~np.isnan(row))
            at += 1
    return times, latest - times, values


def _binned(found: Window, metric: Metric, step: float) -> Window:
    """Steps of seconds, from samples."""
    bins = np.floor(found.times / step)
    begins, firsts = np.unique(bins, return_index=True)
    shape = (len(begins), len(found.uids))
    values, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for index, rows in enumerate(np.split(found.values, firsts[1:]) if len(begins) else []):
        sane = _sane(metric, rows)
        count = sane.sum(axis=0)
        sums = np.where(sane, rows, 0.0).sum(axis=0, dtype=np.float64)
        values[index] = np.divide(sums, count, out=np.full(len(sums), np.nan), where=count > 0)
        low[index] = np.fmin.reduce(np.where(sane, rows, np.nan), axis=0)
        high[index] = np.fmax.reduce(np.where(sane, rows, np.nan), axis=0)
        if metric.counter:
            values[index] = high[index]
    return Window(
        metric=found.metric, times=begins * step, uids=found.uids, values=values, flags=found.flags, low=low, high=high
    )


def _sane(metric: Metric, values: Floats) -> npt.NDArray[np.bool_]:
    if metric.counter:
        return ~np.isnan(values)
    return (values >= metric.floor) & (values <= metric.ceiling)


def check_window(start: float, end: float, step: float) -> None:
    """Refuse what makes no sense."""
    if not (math.isfinite(start) and math.isfinite(end)) or end <= start:
        raise BadRequest(f"the time ends at {end}, and begins at {start}", where="end", hint="it must end later")
    if step < 0 or (step >= MINUTE and step % MINUTE) or (0 < step < 1):
        raise BadRequest(f"{step:g} s is no step", where="step", hint="1 to 59 s, or whole minutes; 0 for all samples")
