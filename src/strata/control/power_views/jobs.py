"""What jobs used."""

from __future__ import annotations

from strata.control.power_views.measured import Trouble
from strata.control.texts import Out


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
    joules: float | None
    """None: it was not measured."""
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
    joules: float | None
    """None: nothing was measured."""
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
