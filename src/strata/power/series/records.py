"""What the power layer measures: metrics, samples, and the answers that a series gives.

A *sample* is one value of one metric of one node at one instant. The store keeps one a second for each node and metric:
of several within a second the last one given stays. Times are Unix seconds (UTC), nodes are known by their uid. A value
that is not known is NaN; nothing is ever filled in between.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import BadRequest

Floats = npt.NDArray[np.floating]
Times = npt.NDArray[np.float64]
Uids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """How a metric behaves. What is outside ``floor`` to ``ceiling`` is absurd: flagged, and never used."""

    name: str
    unit: str
    quantum: float
    """Values are kept to the nearest multiple."""
    floor: float
    ceiling: float
    stuck_after: float
    """Seconds without any change after which the sensor is in doubt."""
    counter: bool = False
    """Only ever rises, save for wraps and resets; ``ceiling`` is then the most that it may rise in a second."""


METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="power", unit="W", quantum=0.125, floor=0.0, ceiling=50_000.0, stuck_after=600.0),
        Metric(name="energy", unit="J", quantum=0.125, floor=0.0, ceiling=50_000.0, stuck_after=120.0, counter=True),
        Metric(name="accel-power", unit="W", quantum=0.125, floor=0.0, ceiling=50_000.0, stuck_after=600.0),
        Metric(name="temperature", unit="°C", quantum=0.125, floor=-60.0, ceiling=200.0, stuck_after=7200.0),
        Metric(name="cap", unit="W", quantum=0.125, floor=0.0, ceiling=1_000_000.0, stuck_after=math.inf),
    )
}

WIDEST = 2.0**56
"""Values beyond are nonsense: whatever they are, no metric is."""


def metric_named(name: str) -> Metric:
    """The metric, or a refusal that says which there are."""
    try:
        return METRICS[name]
    except KeyError:
        known = ", ".join(METRICS)
        raise BadRequest(f"there is no metric {name!r}", where="metric", hint=f"there are: {known}") from None


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What some nodes showed at one instant."""

    metric: str
    time: float
    uids: Uids
    """Sorted, each once."""
    values: Floats


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong with the samples of each node; one number for each uid of the answer."""

    gaps: Counts
    """Stretches without samples that were longer than a gauge is trusted to hold."""
    resets: Counts
    """A counter fell, and did not wrap."""
    wraps: Counts
    """A counter passed its end and began anew; that is accounted for."""
    absurd: Counts
    """Values that cannot be; they are not used."""
    stuck: Counts
    """Seconds for which the value did not move, where that is so long that the sensor is in doubt; else 0."""
    differs: Counts
    """1 where a node's energy counter and its power do not agree: one of them is wrong."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over a time. With a step, a row is the time-weighted mean of the step that begins at its time."""

    metric: str
    times: Times
    uids: Uids
    values: Floats
    """``[time, node]``, NaN where nothing was known."""
    flags: Flags
    low: Floats | None = None
    """With a step: the least value in it; likewise ``high``."""
    high: Floats | None = None


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest value of each node; time and value are NaN where it is older than was asked, or there is none."""

    uids: Uids
    times: Times
    values: Floats


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A metric summed over nodes; ``counts`` says over how many at each time, so that nobody takes a part for all."""

    times: Times
    sums: Floats
    counts: Counts


class GroupTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A metric summed over the nodes of each group: ``[time, group]``, and over how many nodes."""

    times: Times
    groups: Counts
    sums: Floats
    counts: Counts


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """What each node used in a time. ``joules`` is what was measured in the known part of it, never extrapolated."""

    uids: Uids
    joules: Times
    known: Times
    """How much of the time is covered by measurements, 0 to 1."""
    error: Times
    """Joules by which the truth about the known part may differ: of a hundred answers of all kinds, 99 are within. What
    a sensor itself is wrong by, nobody knows, and it is not in this."""
    counted: npt.NDArray[np.bool_]
    """From the node's energy counter; else summed up from its power."""
    peak: Times
    """The most power that was seen, in watts; NaN where nothing was."""
    flags: Flags


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that were not taken, since the series was opened."""

    late: int = 0
    """Older than what is still open."""
    early: int = 0
    """From the future: the sender's clock is wrong."""
    nonsense: int = 0
    """Infinite, or beyond any measure."""
    lost: int = 0
    """Taken, but given up again after the database had been away for long."""
