"""What the API takes and tells about power: records, no behaviour. Watts, joules, Unix seconds; None: not known."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strata.control.texts import PLAIN, In, Out

JOB_ID = r"^[A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63}$(?!\n)"
JobIdText = Annotated[str, Meta(pattern=JOB_ID, max_length=64)]
MaybeJobIdText = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63})?$(?!\n)", max_length=64)]
UserText = Annotated[str, Meta(pattern=PLAIN, max_length=64)]
JobNameText = Annotated[str, Meta(pattern=PLAIN, max_length=200)]
NodesText = Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)]
UnixTime = Annotated[float, Meta(ge=0, le=1e11)]


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


class Trouble(Out, frozen=True, kw_only=True):
    """What was wrong with the samples of a node: how often, and for how many seconds a value did not move."""

    gaps: int = 0
    resets: int = 0
    wraps: int = 0
    absurd: int = 0
    stuck: int = 0


class NodeSeries(Out, frozen=True, kw_only=True):
    """One node of a history."""

    node: str
    values: tuple[float | None, ...]
    trouble: Trouble


class PowerHistory(Out, frozen=True, kw_only=True):
    """A metric over time. ``values`` are the sum over nodes (of temperatures the mean); ``counts`` says of how many."""

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


class SitePowerView(Out, frozen=True, kw_only=True):
    """What the site may draw, and how that is kept. What only the controller that keeps it knows is None elsewhere."""

    limit: float | None
    ramp: float | None
    """Watts a minute."""
    band: float | None
    policy: str
    """The one that is enabled; empty: none."""
    controller: str
    """Who keeps it."""
    static: float | None
    """The most that all those draw that cannot be capped."""
    allowed: float | None
    """The most that may be drawn now, given all that is not known."""
    over: float | None
    """By how much that is above the limit; it is being lowered."""
    in_flight: int | None
    """Nodes with a command of which the outcome is not known."""
    error: str


class RehearsalView(Out, frozen=True, kw_only=True):
    """What came of a rehearsal."""

    author: str
    time: float
    nodes: int
    days: float
    limit: float
    peak: float


class PolicyView(Out, frozen=True, kw_only=True):
    """A power policy."""

    name: str
    doc: str
    enabled: bool
    limit: float | None
    author: str
    time: float
    digest: str
    rehearsed: RehearsalView | None
    """The newest rehearsal of this very content."""
    unrehearsed: str
    """Why it was taken without one."""


class PolicyDetail(PolicyView, frozen=True, kw_only=True):
    """And what it says."""

    text: str


class Policies(Out, frozen=True, kw_only=True):
    """All policies, by name, and where the site stands."""

    items: tuple[PolicyView, ...]
    site: SitePowerView


PolicyText = Annotated[str, Meta(min_length=1, max_length=100_000)]


class PolicySpec(In, frozen=True, kw_only=True):
    """A document. ``without_rehearsal`` says why it was not rehearsed."""

    text: PolicyText
    without_rehearsal: Annotated[str, Meta(pattern=PLAIN, max_length=500)] = ""


class RehearsalSpec(In, frozen=True, kw_only=True):
    """That a document was rehearsed, and what came of it."""

    text: PolicyText
    nodes: Annotated[int, Meta(ge=1, le=10_000_000)]
    days: Annotated[float, Meta(gt=0, le=366)]
    limit: Annotated[float, Meta(gt=0, le=1e12)]
    peak: Annotated[float, Meta(ge=0, le=1e12)]


class JobEvent(In, frozen=True, kw_only=True):
    """Something happened to a job, or to an application (``apid``) of it. Without a time: now."""

    what: Literal["start", "end", "suspend", "resume"]
    job: JobIdText
    apid: MaybeJobIdText = ""
    user: UserText = ""
    name: JobNameText = ""
    nodes: NodesText = ""
    """A nodeset (``n[1-4]``). Needed to start a job."""
    time: UnixTime | None = None


class JobAccount(In, frozen=True, kw_only=True):
    """A whole run, as accounting has it. ``end`` None: it goes on."""

    job: JobIdText
    start: UnixTime
    end: UnixTime | None = None
    apid: MaybeJobIdText = ""
    user: UserText = ""
    name: JobNameText = ""
    nodes: NodesText = ""
    suspended: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """Seconds, all in all."""


class JobsTold(In, frozen=True, kw_only=True):
    """What a workload manager tells."""

    events: Annotated[tuple[JobEvent, ...], Meta(max_length=10_000)] = ()
    runs: Annotated[tuple[JobAccount, ...], Meta(max_length=10_000)] = ()


class JobRefused(Out, frozen=True, kw_only=True):
    """What was not taken, and why."""

    job: str
    reason: str


class JobsTaken(Out, frozen=True, kw_only=True):
    """What became of it. Nodes that are not in the fleet are left out and counted."""

    taken: int
    refused: tuple[JobRefused, ...]
    unknown_nodes: int


class JobBrief(Out, frozen=True, kw_only=True):
    """One run of a job or an application, and what it came to if that is known."""

    job: str
    apid: str
    user: str
    name: str
    nodes: int
    start: float
    end: float | None
    seconds: float
    joules: float | None
    known: float | None
    average: float | None
    """Watts of a node."""
    peak: float | None


class JobBriefs(Out, frozen=True, kw_only=True):
    """Jobs, the newest first."""

    items: tuple[JobBrief, ...]


class Spread(Out, frozen=True, kw_only=True):
    """How a number is spread over the nodes of a job."""

    least: float | None
    average: float | None
    most: float | None
    deviation: float | None
    least_node: str
    most_node: str


class JobNode(Out, frozen=True, kw_only=True):
    """One node of a job."""

    node: str
    joules: float
    average: float | None
    peak: float | None
    known: float
    counted: bool
    """From its energy counter; else summed up from its power."""
    trouble: Trouble


class Comparison(Out, frozen=True, kw_only=True):
    """Against earlier runs of the same user and name; of each, what a node drew on average counts."""

    runs: int
    average: float | None
    """Watts of a node: the median of those runs."""
    joules_per_node: float | None
    seconds: float | None
    average_change: float | None
    """Of this run against that median: 0.1 is a tenth more. None: nothing to compare with."""
    joules_change: float | None
    seconds_change: float | None


class JobPower(Out, frozen=True, kw_only=True):
    """What a job used."""

    job: str
    apid: str
    user: str
    name: str
    nodeset: str
    nodes: int
    start: float
    end: float | None
    runs: int
    """How often it ran: more than once where it was requeued. This is the newest."""
    seconds: float
    """That it ran, without the times that it was suspended."""
    suspended: float
    joules: float
    known: float
    error: float
    """Joules by which the truth about the known part may differ."""
    average: float | None
    """Watts of all nodes together, over what is known."""
    peak: float | None
    """Watts of all nodes together: the most at any time."""
    energy: Spread
    power: Spread
    """Of the nodes' averages."""
    highest: Spread
    """Of the nodes' peaks."""
    unmeasured: int
    """Nodes of which nothing is known."""
    trouble: Trouble
    doubt: str
    each: tuple[JobNode, ...]
    applications: tuple[JobBrief, ...]
    earlier: Comparison
