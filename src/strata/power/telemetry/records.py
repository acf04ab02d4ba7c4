"""What nodes, cabinets and the whole machine draw."""

from __future__ import annotations

from strata.core.texts import Out


class NodePower(Out, frozen=True, kw_only=True):
    """A node, as last measured. What is too old is None."""

    node: str
    time: float | None
    """Of the newest of its values."""
    power: float | None
    energy: float | None
    accel_power: float | None
    temperature: float | None
    cap: float | None
    """0: it has none."""


class NodePowerPage(Out, frozen=True, kw_only=True):
    """Nodes, and where the next page begins (empty: there is none)."""

    items: tuple[NodePower, ...]
    next: str = ""


class MachineMeasured(Out, frozen=True, kw_only=True):
    """A metric of every node of ``/v1/machine``, by position; None: not known now."""

    roster: str
    metric: str
    unit: str
    values: tuple[float | None, ...]


class Trouble(Out, frozen=True, kw_only=True):
    """What was wrong with the samples of a node: how often, for how many seconds a value did not move, and whether its
    energy counter and its power differ."""

    gaps: int = 0
    resets: int = 0
    wraps: int = 0
    absurd: int = 0
    stuck: int = 0
    differs: int = 0


class NodeSeries(Out, frozen=True, kw_only=True):
    """One node of a history."""

    node: str
    values: tuple[float | None, ...]
    trouble: Trouble


class PowerHistory(Out, frozen=True, kw_only=True):
    """A metric over time. ``values`` are the sum over nodes (of temperatures the mean, of counters nothing); ``counts``
    says of how many."""

    metric: str
    unit: str
    start: float
    end: float
    step: float
    nodes: int
    """How many were asked for."""
    times: tuple[float, ...]
    values: tuple[float | None, ...]
    counts: tuple[int, ...]
    each: tuple[NodeSeries, ...] = ()


class PowerSummary(Out, frozen=True, kw_only=True):
    """What a part of the machine draws."""

    name: str
    nodes: int
    measured: int
    """Nodes whose power is known now; ``now`` is their sum."""
    now: float | None
    least: float | None
    average: float | None
    most: float | None
    caps: float | None
    """What the caps of its nodes add up to; null: not each of them has one."""


class SystemPower(Out, frozen=True, kw_only=True):
    """The whole machine, as far as the caller may see it."""

    start: float
    end: float
    step: float
    system: PowerSummary
    joules: float
    """Measured, over ``start`` to ``end``; never extrapolated to what is not known."""
    known: float
    """How much of the time and of the nodes is covered by measurements, 0 to 1."""


class CabinetsPower(Out, frozen=True, kw_only=True):
    """Each cabinet; nodes of which no place is known are in the one without a name."""

    start: float
    end: float
    step: float
    items: tuple[PowerSummary, ...]
