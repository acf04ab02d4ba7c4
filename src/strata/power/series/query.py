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
from strata.power.series.downsample import ROW, Fold, Matrix
from strata.power.series.ends import Ends, look_at_ends
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
    times, spread, values = reader.samples(asked, start, end)
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
    counter, power = counters.fold(asked, start, end), powers.fold(asked, start, end)
    ends = Ends.unknown(len(asked))
    coarse = (counter.summary[ROW["step"]] > _FINE) & (counter.summary[ROW["joules"]] > 0)
    places = np.flatnonzero((coarse | (power.summary[ROW["n"]] < _FEW_LOOKS)) & (power.summary[ROW["n"]] > 0))
    if 0 < len(places) <= _MOST_LOOKED_AT:
        step = counter.summary[ROW["step"]][places]
        ends.put(places, look_at_ends(counters, powers, asked[places], step, start, end))
    return energy_of(asked, start, end, counter, power, ends)


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


_ROUNDING = 1e-6
"""Sums are kept with seven digits."""

_FINE = 100.0
"""Joules: a counter that tells more finely is not looked at more closely."""
_FEW_LOOKS = 60
"""With more of them, what is before and after tells nothing new."""
_MOST_LOOKED_AT = 16_384
"""Nodes of one question: of more, their samples would be too many to go through."""

# How much of what is possible is said to be likely. These were fitted to simulated jobs, so that 99 of 100 answers are
# within what is said, and that is less than three times what they are wrong by (bench/energy.py).
LIKELY = 2.1
"""How many times its likely error a sum of many small ones is said to be wrong by."""
FEW = 3.5
"""With so few samples that is twice as much: what is likely is not well known then."""
AS_AROUND = 4.0
"""What happened before and after counts as much as so many samples."""
RESTLESS, UNSEEN = 0.007, 13.3
"""By what part of itself a node's power changes at least, however steady its samples are; twice as much with so few of
them."""
EDGE = 0.62
"""What the two ends of a time are said to be wrong by, as a part of the worst."""
LOST = 0.75
"""The same for what was drawn while a counter began anew."""
SELDOM_BOTH = 0.2
"""Two ends are seldom both wrong the worst way: by how much less that makes them, as a part of their geometric mean.
That is what 99 of 100 sums of two uniform errors keep."""

APART = 1.5
"""Counter and power disagree when they differ by so many times what both may be wrong by."""
STILL = 3.0
"""Steps' worth of energy for which a counter may stand still; after that it is not believed."""
TOLD_IN = 1.0
"""Watts in which power is told that has not changed, so that nobody knows how finely it is."""
TOLD_WITHIN = 0.02
"""The same for one that has changed, at most, as a part of the highest: a few changes may all be multiples of much."""


def energy_of(uids: Uids, start: float, end: float, counter: Fold, power: Fold, ends: Ends) -> Energy:
    """Both folds are of these nodes and this time, ``ends`` is what the samples there tell. Each node has the better of
    two answers: its power, summed up; or the rise of its counter, with its power where the counter does not reach
    (before its first and after its last reading, and where it began anew). Which is better is a matter of what each may
    be wrong by, and of how much it lacks."""
    length = max(end - start, 1e-9)
    counters, powers = counter.summary, power.summary
    by_power, by_counter = _from_power(power, ends), _from_counter(counter, power, ends, length)
    watts = np.divide(by_power.joules, by_power.seconds, out=by_counter.watts(), where=by_power.seconds > 0)

    def cost(one: _Answer) -> Times:
        return np.asarray(one.error + watts * np.maximum(0.0, length - one.seconds))

    counted = (by_counter.seconds > 0) & ((by_power.seconds <= 0) | (cost(by_counter) < cost(by_power)))
    more, both = by_counter.joules - by_power.joules, by_counter.error + by_power.error
    whole = np.minimum(by_counter.seconds, by_power.seconds) >= 0.99 * length
    # A counter that tells less than was drawn did not count for a while. One that tells more saw what happened between
    # two looks at the power, or is wrong: it is believed, and not further than the two differ.
    differs = whole & (np.abs(more) > APART * both)
    counted &= ~(whole & (more < -both))
    counted |= differs & (more > 0)
    error = np.where(counted, by_counter.error, by_power.error) + np.where(differs & counted, np.abs(more), 0.0)
    flags_c, flags_p = counter.flags(), power.flags()
    low = np.where(powers[ROW["n"]] > 0, powers[ROW["low"]], 0.0)
    sure = (counters[ROW["flat"]] * low > STILL * counters[ROW["step"]]) & (powers[ROW["n"]] > 0)
    stuck = np.where(sure | (by_power.seconds <= 0), flags_c.stuck, 0)
    flags = Flags(
        gaps=np.where(counted, flags_c.gaps, flags_p.gaps),
        resets=flags_c.resets,
        wraps=flags_c.wraps,
        absurd=flags_c.absurd + flags_p.absurd,
        stuck=np.where(counted, stuck, np.maximum(stuck, flags_p.stuck)),
        differs=differs.astype(np.int64),
    )
    return Energy(
        uids=uids,
        joules=np.where(counted, by_counter.joules, by_power.joules),
        known=np.clip(np.where(counted, by_counter.seconds, by_power.seconds) / length, 0.0, 1.0),
        error=error,
        counted=counted,
        peak=np.where(powers[ROW["n"]] > 0, powers[ROW["high"]], _fastest(counter)),
        flags=flags,
    )


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    joules: Times
    seconds: Times
    """That it is about."""
    error: Times

    def watts(self) -> Times:
        return np.asarray(np.divide(self.joules, self.seconds, out=np.zeros_like(self.joules), where=self.seconds > 0))


def _from_power(fold: Fold, ends: Ends) -> _Answer:
    """What the two ends are wrong by at worst, and what is likely of all the changes between them together. What it is
    rounded to adds up for as long as it does not change."""
    found = fold.summary
    samples = np.maximum(found[ROW["n"]], 1.0)
    # Summaries of an older version have only the worst.
    old = (found[ROW["rough"]] <= 0) & (found[ROW["error"]] > fold.edge_error)
    changes = np.where(old, found[ROW["error"]] - fold.edge_error, 0.0)
    changes = np.where(old, changes, LIKELY * (1.0 + FEW / samples) * np.sqrt(_variance(found, samples, ends)))
    restless = RESTLESS * (1.0 + UNSEEN / samples) * found[ROW["joules"]] / np.sqrt(samples)
    likely = np.hypot(EDGE * fold.edge_error, np.maximum(changes, restless))
    most = np.maximum(TOLD_IN, TOLD_WITHIN * np.nan_to_num(found[ROW["high"]], neginf=0.0))
    told_in = np.where(found[ROW["step"]] > 0, np.minimum(found[ROW["step"]], most), TOLD_IN)
    rounding = (told_in + METRICS["power"].quantum) / 2 * np.minimum(found[ROW["flat"]], found[ROW["covered"]])
    error = likely + rounding + _ROUNDING * found[ROW["joules"]]
    return _Answer(joules=found[ROW["joules"]], seconds=found[ROW["covered"]], error=np.asarray(error))


def _variance(found: Matrix, samples: Times, ends: Ends) -> Times:
    """The square of the likely error of an integral: as its own samples tell, and, the fewer they are, those before and
    after it."""
    around = np.divide(ends.rough, ends.seconds, out=np.zeros_like(samples), where=ends.seconds > 0)
    around *= found[ROW["covered"]] * _factor(ends.rough, ends.fro)
    weight = np.where(ends.seconds > 0, AS_AROUND / (samples + AS_AROUND), 0.0)
    return np.asarray((1.0 - weight) * _likely(found) + weight * around)


_TAKEN_BACK = (0.0, 0.3, 1.0)
_LIKELY = (0.098, 0.128, 0.16)


def _factor(rough: Times, fro: Times) -> Times:
    back = np.divide(2.0 * fro, rough, out=np.zeros_like(rough), where=rough > 0)
    return np.asarray(np.interp(back, _TAKEN_BACK, _LIKELY))


def _likely(found: Matrix) -> Times:
    """What the samples of a time tell of the square of its likely error. Nobody knows when between two samples a value
    changed. If it stays as it is after a change, the error is that of one moment at random; the more of a change is
    taken back by the next one, the more happens that nobody sees."""
    minutes = found[ROW["covered"]] / MINUTE
    # Where two minutes meet, it is not kept how their changes relate.
    pairs = found[ROW["n"]] - 2.0 * minutes
    scale = np.divide(found[ROW["n"]], pairs, out=np.zeros_like(pairs), where=pairs > 0.5 * minutes)
    rough = found[ROW["rough"]]
    fro = np.where(scale > 0, scale * found[ROW["fro"]], rough * np.mean(_TAKEN_BACK[-2:]) / 2)
    return np.asarray(rough * _factor(rough, fro))


def _from_counter(fold: Fold, power: Fold, ends: Ends, length: float) -> _Answer:
    found, powers = fold.summary, power.summary
    known_p = powers[ROW["covered"]]
    drawn = np.divide(powers[ROW["joules"]], known_p, out=np.zeros_like(known_p), where=known_p > 0)
    # Between two looks, with none within the time, there is no highest and no lowest.
    high, low = (np.where(np.isfinite(powers[ROW[name]]), powers[ROW[name]], drawn) for name in ("high", "low"))
    inner = found[ROW["covered"]] - fold.edge_time
    near = (known_p > 0) & (power.edge_time >= fold.edge_time - 1.0)
    edge_time = np.where(near, power.edge_time, fold.edge_time)
    lost = np.where(known_p >= 0.99 * length, np.maximum(0.0, length - inner - edge_time), 0.0)
    # Counters begin anew when much is drawn rather than little.
    then = np.where(known_p > 0, (drawn + high) / 2, 0.0)
    swing = np.where(known_p > 0, np.maximum(high - then, then - low), 0.0)
    edge = np.where(near, power.edge, fold.edge) + lost * then
    rates = np.where(np.isfinite(found[ROW["high"]]), found[ROW["high"]], 0.0)
    rates -= np.where(np.isfinite(found[ROW["low"]]), found[ROW["low"]], 0.0)
    own = np.minimum(fold.edge_error, rates * fold.edge_time)
    times = 1.0 + found[ROW["resets"]] + found[ROW["absurd"]]
    edge_error = np.hypot(np.where(near, EDGE * power.edge_error, own), LOST * lost * swing / np.sqrt(times))
    rounded, more = _rounded(fold, np.where(known_p > 0, low, 0.0), ends)
    uncertain = np.hypot(edge_error, np.hypot(rounded, _shift(fold, power)))
    cut = found[ROW["error"]] - fold.edge_error + np.spacing(np.nan_to_num(found[ROW["last_v"]]))
    # One that has not moved at all may be one that never does, and one that stands still is not believed.
    still = (found[ROW["flat"]] >= METRICS["energy"].stuck_after) & (
        found[ROW["flat"]] * low > STILL * found[ROW["step"]]
    )
    moved = (found[ROW["joules"]] > 0) & ~still
    return _Answer(
        joules=np.where(moved, found[ROW["joules"]] - fold.edge + edge + more, 0.0),
        seconds=np.where(moved & (found[ROW["covered"]] > 0), inner + edge_time + lost, 0.0),
        error=np.asarray(uncertain + cut + _ROUNDING * found[ROW["joules"]]),
    )


def _rounded(fold: Fold, low: Times, ends: Ends) -> tuple[Times, Times]:
    """What a counter's own steps make it wrong by, at the two ends of each unbroken stretch; and how much more was used
    than it tells, where its steps near the two ends of the time say so. One that is not brought up to date at every
    look has larger steps than it tells: what the node draws at least while it stands still."""
    found = fold.summary
    step = found[ROW["step"]] + METRICS["energy"].quantum
    breaks = found[ROW["resets"]] + found[ROW["absurd"]]
    rounded = np.maximum(step, found[ROW["flat"]] * low) * np.sqrt(1.0 + breaks)
    each = np.divide(found[ROW["covered"]], found[ROW["n"]], out=np.zeros_like(step), where=found[ROW["n"]] > 0)
    prompt = (found[ROW["flat"]] - 2.5 * each) * low <= step
    first, last = ends.bounds
    bound = first + last - SELDOM_BOTH * np.sqrt(first * last)
    sharp = np.sqrt(bound**2 + LIKELY**2 * ends.variance + breaks * step**2)
    better = prompt & (sharp < rounded)
    return np.where(better, sharp, rounded), np.where(better, ends.joules, 0.0)


def _fastest(fold: Fold) -> Times:
    """The fastest rise of a counter, where its steps are fine enough for that to say anything."""
    found = fold.summary
    each = np.divide(found[ROW["covered"]], found[ROW["n"]], out=np.zeros(found.shape[1]), where=found[ROW["n"]] > 0)
    mean = np.divide(
        found[ROW["joules"]],
        found[ROW["covered"]],
        out=np.full(found.shape[1], np.nan),
        where=found[ROW["covered"]] > 0,
    )
    high = np.where(np.isfinite(found[ROW["high"]]), found[ROW["high"]], np.nan)
    return np.where(found[ROW["step"]] <= 0.1 * high * each, high, mean)


def _shift(fold: Fold, power: Fold) -> Times:
    """Rows have one time for all nodes, which differs from each node's own by up to the spread, at either end. What a
    coarse counter rose by in one look says nothing of what was drawn then; power does, where it is known."""
    rise, drawn = (np.maximum(np.nan_to_num(one.summary[ROW["high"]], neginf=0.0), 0.0) for one in (fold, power))
    return np.asarray(2.0 * fold.summary[ROW["spread"]] * np.where(power.summary[ROW["n"]] > 0, drawn, rise))
