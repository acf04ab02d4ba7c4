"""What runs of jobs came to, in figures: sums, spreads over nodes, against earlier runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.nodeset import fold
from strata.power.accounting.records import Comparison, Drawn, JobBrief, JobNode, JobPower, Run, Spread, Summary
from strata.power.series.records import Energy
from strata.power.telemetry.sums import trouble

EACH_AT_MOST = 1000
"""Nodes of a job that an answer lists: those that used the most."""
GONE = " (gone)"
"""Behind the uid of a node that is no more; no name has spaces."""

LOST = 0.005
"""The share of a run's time that may be known of it no more before the figures that were kept are the better ones."""

Floats = npt.NDArray[np.float64]
NOTHING: Floats = np.empty(0)


def view(
    run: Run,
    runs: int,
    now: float,
    used: Energy,
    names: Sequence[str],
    peak: float | None,
    parts: Sequence[Run],
    compared: Comparison,
    drawn: Sequence[Drawn],
    allocated: float | None,
) -> JobPower:
    """The long answer; ``names`` are those of ``used.uids``. Where less is left of the samples than there was when the
    run was summed up, its figures are those that were kept then."""
    spent, kept = summed(run, used, now), lost(run, used)
    figures = spent if kept is None else kept
    measured, averages, peaks = _each(used, _active(run, now))
    order = np.argsort(-used.joules, kind="stable")[:EACH_AT_MOST]
    together = _maybe(figures.together)
    return JobPower(
        **run.named,
        nodeset=fold(name for name in names if GONE not in name),
        nodes=len(names),
        start=run.start,
        end=run.end,
        runs=runs,
        seconds=spent.seconds,
        suspended=max(0.0, (now if run.end is None else run.end) - run.start - spent.seconds),
        joules=figures.joules if figures.known > 0 else None,
        known=figures.known,
        error=figures.error,
        average=together,
        peak=None if kept is not None or peak is None else max(peak, together or 0.0),
        drawn=tuple(drawn),
        allocated=allocated,
        energy=_spread(np.where(measured, used.joules, np.nan) if kept is None else NOTHING, names),
        power=_spread(averages, names) if kept is None else _only(average=_maybe(kept.average)),
        highest=_spread(peaks, names) if kept is None else _only(most=_maybe(kept.peak)),
        unmeasured=figures.unmeasured,
        trouble=trouble(used.flags, slice(None)),
        doubt=run.doubt or _doubt(run, kept),
        each=tuple(
            JobNode(
                node=names[i],
                joules=float(used.joules[i]) if measured[i] else None,
                average=_maybe(averages[i]),
                peak=_maybe(peaks[i]),
                known=float(used.known[i]),
                counted=bool(used.counted[i]),
                trouble=trouble(used.flags, i),
            )
            for i in order.tolist()
        ),
        applications=tuple(brief(part, now) for part in parts),
        earlier=compared,
    )


def lost(run: Run, used: Energy) -> Summary | None:
    """The figures that were kept, where the samples do not say as much any more."""
    known = float(used.known.mean()) if len(used.uids) else 0.0
    return run.summary if run.summary is not None and run.summary.known > known + LOST else None


def _doubt(run: Run, kept: Summary | None) -> str:
    if kept is not None:
        return "its samples are gone: the figures are those that were kept of it; of its nodes there are none"
    return "when it was suspended is not known" if run.unplaced else ""


def _active(run: Run, now: float) -> float:
    return max(1e-9, sum(end - start for start, end in run.spans(now)))


def _each(used: Energy, active: float) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Which nodes were measured, what each drew on average, and at most. What a node drew between two looks is in its
    counter only: so its highest power is at least its average."""
    measured: npt.NDArray[np.bool_] = used.known > 0
    averages = np.full(len(used.uids), np.nan)
    np.divide(used.joules, used.known * active, out=averages, where=measured)
    return measured, averages, np.fmax(used.peak, averages)


def summed(run: Run, used: Energy, now: float) -> Summary:
    measured, averages, peaks = _each(used, _active(run, now))
    some = bool(measured.any())
    return Summary(
        joules=float(used.joules.sum()),
        known=float(used.known.mean()) if len(used.uids) else 0.0,
        seconds=run.seconds(now),
        nodes=len(used.uids),
        average=float(averages[measured].mean()) if some else math.nan,
        peak=float(peaks[measured].max()) if some else math.nan,
        together=float(averages[measured].sum()) if some else math.nan,
        error=float(used.error.sum()),
        unmeasured=int((~measured).sum()),
    )


def compared_with(this: Summary, earlier: Sequence[Summary]) -> Comparison:
    """Against the median of those of which most is known."""
    good = [one for one in earlier if one.known >= 0.5 and one.nodes and math.isfinite(one.average)]
    if not good:
        return Comparison(
            runs=0, average=None, joules_per_node=None, seconds=None, average_change=None, joules_change=None,
            seconds_change=None,
        )  # fmt: skip
    average = float(np.median([one.average for one in good]))
    joules = float(np.median([one.joules / one.nodes for one in good]))
    seconds = float(np.median([one.seconds for one in good]))
    mine = this.joules / this.nodes if this.nodes and this.known >= 0.5 else math.nan
    return Comparison(
        runs=len(good),
        average=average,
        joules_per_node=joules,
        seconds=seconds,
        average_change=_change(this.average, average),
        joules_change=_change(mine, joules),
        seconds_change=_change(this.seconds, seconds),
    )


def _change(this: float, that: float) -> float | None:
    return _maybe(this / that - 1) if that > 0 else None


def brief(run: Run, now: float) -> JobBrief:
    """A run in one line."""
    summary = run.summary
    return JobBrief(
        **run.named,
        nodes=intset.count(run.uids),
        start=run.start,
        end=run.end,
        seconds=run.seconds(now),
        joules=summary.joules if summary and summary.known > 0 else None,
        known=summary.known if summary else None,
        average=_maybe(summary.average) if summary else None,
        peak=_maybe(summary.peak) if summary else None,
    )


def drawn(minutes: int, sums: Floats) -> Drawn:
    """The least, average and most of what all nodes drew together."""
    if not len(sums):
        return Drawn(minutes=minutes, least=None, average=None, most=None)
    return Drawn(minutes=minutes, least=float(sums.min()), average=float(sums.mean()), most=float(sums.max()))


def _spread(values: Floats, names: Sequence[str]) -> Spread:
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return _only()
    low, high = known[np.argmin(values[known])], known[np.argmax(values[known])]
    return Spread(
        least=float(values[low]),
        average=float(values[known].mean()),
        most=float(values[high]),
        deviation=float(values[known].std()),
        least_node=names[int(low)],
        most_node=names[int(high)],
    )


def _only(*, average: float | None = None, most: float | None = None) -> Spread:
    """Of single nodes nothing is known."""
    return Spread(least=None, average=average, most=most, deviation=None, least_node="", most_node="")


def _maybe(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
