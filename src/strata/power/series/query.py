"""The questions to the telemetry, answered from reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import united
from strata.core.errors import BadRequest
from strata.power.series.chunk_store import LEVELS
from strata.power.series.downsample import ROW, Fold
from strata.power.series.reader import Reader, Sums
from strata.power.series.records import (
    METRICS,
    Counts,
    Energy,
    Flags,
    Floats,
    GroupTotals,
    Latest,
    Metric,
    Times,
    Total,
    Uids,
    Window,
)

MINUTE = LEVELS[0]


def window(reader: Reader, uids: Uids | None, start: float, end: float, step: float) -> Window:
    asked = uids if uids is not None else reader.uids(start, end)
    if step >= MINUTE:
        return _coarse(reader, asked, start, end, step)
    times, spread, values = _samples(reader, asked, start, end)
    fold = Fold(reader.metric, len(asked), reader.hold)
    for index, time in enumerate(times):
        fold.row(float(time), values[index], float(spread[index]))
    if uids is None:
        there = ~np.isnan(values).all(axis=0)
        if not there.all():
            return window(reader, asked[there], start, end, step)
    found = Window(metric=reader.metric.name, times=times, uids=asked, values=values, flags=fold.flags())
    return _binned(found, reader.metric, step) if step else found


def total(reader: Reader, uids: Uids | None, start: float, end: float, step: float) -> Total:
    _check_gauge(reader.metric)
    found = _by_second(reader.sums(uids, start, end))
    return _in_steps(reader, uids, found, start, end, step) if step else found.total


def totals(reader: Reader, uids: Uids, groups: Counts, start: float, end: float) -> GroupTotals:
    _check_gauge(reader.metric)
    order = np.argsort(groups, kind="stable")
    names, firsts = np.unique(groups[order], return_index=True)
    parts: list[tuple[Times, Times, Counts]] = []
    for rows in reader.rows(uids, start, end) if len(names) else ():
        values = rows.values[:, order]
        sane = _sane(reader.metric, values)
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


def _in_steps(reader: Reader, uids: Uids | None, found: _Seconds, start: float, end: float, step: float) -> Total:
    """The sum of the nodes' means. Where every node is in every second of a step, that is the mean of the sums."""
    begins, firsts = np.unique(np.floor(found.total.times / step) * step, return_index=True)
    if not len(begins):
        return found.total
    lengths = np.diff([*firsts, len(found.total.times)])
    sums = np.add.reduceat(found.total.sums, firsts) / lengths
    counts = np.maximum.reduceat(found.total.counts, firsts)
    for index in np.flatnonzero(~np.logical_and.reduceat(found.whole, firsts)):
        begin = float(begins[index])
        part = window(reader, uids, max(start, begin), min(end, begin + step), step)
        known = _sane(reader.metric, part.values)
        sums[index] = np.where(known, part.values, 0.0).sum()
        counts[index] = known.sum()
    return Total(times=begins, sums=sums, counts=counts)


def latest(reader: Reader, uids: Uids | None, since: float) -> Latest:
    parts = reader.open_parts
    asked = uids if uids is not None else reduce(united, [part.uids for part in parts], np.empty(0, np.int64))
    times, values = np.full(len(asked), np.nan), np.full(len(asked), np.nan)
    for part in parts:
        when, what = part.newest(asked)
        newer = (when >= since) & ~(times > when)
        times, values = np.where(newer, when, times), np.where(newer, what, values)
    return Latest(uids=asked, times=times, values=values)


def energy(counters: Reader, powers: Reader, uids: Uids | None, start: float, end: float) -> Energy:
    asked = uids if uids is not None else united(counters.uids(start, end), powers.uids(start, end))
    return energy_of(asked, start, end, counters.fold(asked, start, end), powers.fold(asked, start, end))


def _coarse(reader: Reader, uids: Uids, start: float, end: float, step: float) -> Window:
    begins = _begins(start, end, step)
    shape = (len(begins), len(uids))
    values, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    whole = Fold(reader.metric, len(uids), reader.hold)
    if len(begins):
        for level in LEVELS:
            reader.heads(level, float(begins[0]), float(begins[-1]) + step)
    for index, begin in enumerate(begins):
        fold = reader.fold(uids, float(begin), float(begin) + step, bridged=False)
        values[index] = fold.means()
        for into, name in ((low, "low"), (high, "high")):
            bound = fold.summary[ROW[name]]
            into[index] = np.where(np.isfinite(bound), bound, np.nan)
        whole.absorb(fold.summary)
    there = ~np.isnan(values).all(axis=1)
    return Window(
        metric=reader.metric.name,
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


def _samples(reader: Reader, uids: Uids, start: float, end: float) -> tuple[Times, Times, Floats]:
    """One row for each second, out of what several chunks and writers have of it."""
    parts, metric, nodes = list(reader.rows(uids, start, end)), reader.metric, len(uids)
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
    if not (math.isfinite(start) and math.isfinite(end)) or end <= start:
        raise BadRequest(f"the time ends at {end}, and begins at {start}", where="end", hint="it must end later")
    if step < 0 or (step >= MINUTE and step % MINUTE) or (0 < step < 1):
        raise BadRequest(f"{step:g} s is no step", where="step", hint="1 to 59 s, or whole minutes; 0 for all samples")


AS_GOOD = 0.01
"""A counter is preferred as long as it covers no more than this much less of the time than the power does."""

_ROUNDING = 1e-6
"""Sums are kept with seven digits."""


def energy_of(uids: Uids, start: float, end: float, counter: Fold, power: Fold) -> Energy:
    """Both folds are of these nodes and this time."""
    length = max(end - start, 1e-9)
    counters, powers = counter.summary, power.summary
    known_c, known_p = counters[ROW["covered"]] / length, powers[ROW["covered"]] / length
    flags_c, flags_p = counter.flags(), power.flags()
    # A counter that stands still while the node draws power counts nothing.
    dead = (counters[ROW["joules"]] <= 0.0) & (powers[ROW["joules"]] > 1.0) & (flags_c.stuck > 0)
    counted = (known_c > 0.0) & (known_c >= known_p - AS_GOOD) & ~dead
    peak = np.where(powers[ROW["n"]] > 0, powers[ROW["high"]], counters[ROW["high"]])
    peak = np.where(np.isfinite(peak), peak, np.nan)
    flags = Flags(
        gaps=np.where(counted, flags_c.gaps, flags_p.gaps),
        resets=flags_c.resets,
        wraps=flags_c.wraps,
        absurd=flags_c.absurd + flags_p.absurd,
        stuck=np.where(counted, flags_c.stuck, np.where(dead, np.maximum(flags_c.stuck, flags_p.stuck), flags_p.stuck)),
    )
    return Energy(
        uids=uids,
        joules=np.where(counted, counters[ROW["joules"]], powers[ROW["joules"]]),
        known=np.clip(np.where(counted, known_c, known_p), 0.0, 1.0),
        error=np.where(counted, _counter_error(counter), _power_error(power)),
        counted=counted,
        peak=peak,
        flags=flags,
    )


def _counter_error(fold: Fold) -> Times:
    """The two ends of each unbroken stretch are rounded, and may be off in time by the spread of their row."""
    found = fold.summary
    broken = found[ROW["resets"]] + found[ROW["absurd"]] + found[ROW["gaps"]]
    ends = METRICS["energy"].quantum * (1.0 + broken)
    high = np.maximum(found[ROW["high"]], 0.0)
    wide = np.spacing(np.nan_to_num(found[ROW["last_v"]]))
    return np.asarray(found[ROW["error"]] + ends + wide + _shift(fold, high) + _ROUNDING * found[ROW["joules"]])


def _power_error(fold: Fold) -> Times:
    found = fold.summary
    high = np.maximum(found[ROW["high"]], 0.0)
    rounding = METRICS["power"].quantum / 2 * found[ROW["covered"]]
    return np.asarray(found[ROW["error"]] + rounding + _shift(fold, high) + _ROUNDING * found[ROW["joules"]])


def _shift(fold: Fold, high: Times) -> Times:
    return np.asarray(2.0 * fold.summary[ROW["spread"]] * np.where(np.isfinite(high), high, 0.0))
