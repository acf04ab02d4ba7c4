"""What runs of jobs came to, in figures: sums, spreads over nodes, against earlier runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.control.power_sums import trouble
from strata.control.power_views.jobs import Comparison, JobBrief, JobNode, JobPower, Spread
from strata.core import intset
from strata.core.nodeset import fold
from strata.power.interval_records import Run, Summary
from strata.power.series import Energy

EACH_AT_MOST = 1000
"""Nodes of a job that an answer lists: those that used the most."""
GONE = " (gone)"
"""Behind the uid of a node that is no more; no name has spaces."""

Floats = npt.NDArray[np.float64]


def view(
    run: Run,
    runs: int,
    now: float,
    used: Energy,
    names: Sequence[str],
    peak: float | None,
    parts: Sequence[Run],
    compared: Comparison,
) -> JobPower:
    """The long answer; ``names`` are those of ``used.uids``."""
    seconds = run.seconds(now)
    active = max(1e-9, sum(end - start for start, end in run.spans(now)))
    measured = used.known > 0
    averages = np.full(len(names), np.nan)
    np.divide(used.joules, used.known * active, out=averages, where=measured)
    order = np.argsort(-used.joules, kind="stable")[:EACH_AT_MOST]
    total = _total(used, active)
    return JobPower(
        job=run.job,
        apid=run.apid,
        user=run.user,
        name=run.name,
        nodeset=fold(name for name in names if GONE not in name),
        nodes=len(names),
        start=run.start,
        end=run.end,
        runs=runs,
        seconds=seconds,
        suspended=max(0.0, (now if run.end is None else run.end) - run.start - seconds),
        joules=float(used.joules.sum()),
        known=float(used.known.mean()) if len(names) else 0.0,
        error=float(used.error.sum()),
        average=total,
        peak=peak,
        energy=_spread(np.where(measured, used.joules, np.nan), names),
        power=_spread(averages, names),
        highest=_spread(used.peak, names),
        unmeasured=int((~measured).sum()),
        trouble=trouble(used.flags, slice(None)),
        doubt=run.doubt or ("when it was suspended is not known" if run.unplaced else ""),
        each=tuple(
            JobNode(
                node=names[i],
                joules=float(used.joules[i]),
                average=_maybe(averages[i]),
                peak=_maybe(used.peak[i]),
                known=float(used.known[i]),
                counted=bool(used.counted[i]),
                trouble=trouble(used.flags, i),
            )
            for i in order.tolist()
        ),
        applications=tuple(brief(part, now) for part in parts),
        earlier=compared,
    )


def _total(used: Energy, active: float) -> float | None:
    """Watts of all nodes together: the sum of what each drew on average while it was measured."""
    measured = used.known > 0
    if not measured.any():
        return None
    return float((used.joules[measured] / (used.known[measured] * active)).sum())


def summed(run: Run, used: Energy, now: float) -> Summary:
    """What a run came to."""
    active = max(1e-9, sum(end - start for start, end in run.spans(now)))
    total, measured = _total(used, active), int((used.known > 0).sum())
    return Summary(
        joules=float(used.joules.sum()),
        known=float(used.known.mean()) if len(used.uids) else 0.0,
        seconds=run.seconds(now),
        nodes=len(used.uids),
        average=math.nan if total is None else total / measured,
        peak=float(np.nanmax(used.peak)) if measured and np.isfinite(used.peak).any() else math.nan,
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
        job=run.job,
        apid=run.apid,
        user=run.user,
        name=run.name,
        nodes=intset.count(run.uids),
        start=run.start,
        end=run.end,
        seconds=run.seconds(now),
        joules=summary.joules if summary else None,
        known=summary.known if summary else None,
        average=_maybe(summary.average) if summary else None,
        peak=_maybe(summary.peak) if summary else None,
    )


def _spread(values: Floats, names: Sequence[str]) -> Spread:
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return Spread(least=None, average=None, most=None, deviation=None, least_node="", most_node="")
    low, high = known[np.argmin(values[known])], known[np.argmax(values[known])]
    return Spread(
        least=float(values[low]),
        average=float(values[known].mean()),
        most=float(values[high]),
        deviation=float(values[known].std()),
        least_node=names[int(low)],
        most_node=names[int(high)],
    )


def _maybe(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
