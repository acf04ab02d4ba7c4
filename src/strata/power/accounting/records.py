"""Jobs: what a workload manager tells of them, what is kept of their runs, and what they used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strata.core.intset import Runs
from strata.core.texts import PLAIN, In, Out
from strata.power.telemetry.columns import Uids
from strata.power.telemetry.records import Trouble

JOB_ID = r"^[A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63}$(?!\n)"
JobIdText = Annotated[str, Meta(pattern=JOB_ID, max_length=64)]
MaybeJobIdText = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63})?$(?!\n)", max_length=64)]
UserText = Annotated[str, Meta(pattern=PLAIN, max_length=64)]
JobNameText = Annotated[str, Meta(pattern=PLAIN, max_length=200)]
NodesText = Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)]
UnixTime = Annotated[float, Meta(ge=0, le=1e11)]


class Named(In, frozen=True, kw_only=True):
    """Which job, or application (``apid``) of it."""

    job: JobIdText
    apid: MaybeJobIdText = ""
    user: UserText = ""
    name: JobNameText = ""

    @property
    def named(self) -> dict[str, Any]:
        """Only that."""
        return {field: getattr(self, field) for field in Named.__struct_fields__}


class _Used(Out, frozen=True, kw_only=True):
    job: str
    apid: str
    user: str
    name: str
    nodes: int
    start: float
    end: float | None
    seconds: float
    """That it ran, without the times that it was suspended."""
    joules: float | None
    """None: nothing was measured."""


class JobBrief(_Used, frozen=True, kw_only=True):
    """One run of a job or an application, and what it came to if that is known."""

    known: float | None
    average: float | None
    """Watts of a node."""
    peak: float | None


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


class Drawn(Out, frozen=True, kw_only=True):
    """What all nodes of a job drew together in its last minutes, or in all of its time (``minutes`` 0). Watts; None:
    not known."""

    minutes: int
    least: float | None
    average: float | None
    most: float | None


class JobPower(_Used, frozen=True, kw_only=True):
    """What a job used."""

    nodeset: str
    runs: int
    """How often it ran: more than once where it was requeued. This is the newest."""
    suspended: float
    known: float
    error: float
    """Joules by which the truth about the known part may differ."""
    average: float | None
    """Watts of all nodes together, over what is known."""
    peak: float | None
    """Watts of all nodes together: the most at any time."""
    drawn: tuple[Drawn, ...]
    """Over its whole time, and its last 60, 30, 15 minutes and 1 minute."""
    allocated: float | None
    """Joules that its nodes might have drawn under the caps that they had: what a site charges for that charges for
    power set aside. None: of some node it is not known what it may draw."""
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


What = Literal["start", "end", "suspend", "resume"]
Span = tuple[float, float]


class JobEvent(Named, frozen=True, kw_only=True):
    """Something happened to a job, or to an application (``apid``) of it. Without a time: now."""

    what: What
    nodes: NodesText = ""
    """A nodeset (``n[1-4]``). Needed to start a job."""
    time: UnixTime | None = None


class JobAccount(Named, frozen=True, kw_only=True):
    """A whole run, as accounting has it. ``end`` None: it goes on."""

    start: UnixTime
    end: UnixTime | None = None
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


class Event(Named, frozen=True, kw_only=True):
    """Something happened to a job, or to an application of it. ``uids`` as runs; of an application without any, those
    of its job."""

    what: What
    time: float
    uids: Runs = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished run came to. Kept with it, since it outlives the samples."""

    joules: float
    known: float
    """How much of the run is covered by measurements, 0 to 1."""
    seconds: float
    """That it ran, without the times that it was suspended."""
    nodes: int
    average: float
    """Watts of a node, over what is known; NaN where nothing is."""
    peak: float
    """Watts: the most that any of its nodes drew; NaN where nothing is known."""
    together: float = math.nan
    """Watts of all nodes together, on average; NaN where that was not kept."""
    error: float = 0.0
    """Joules by which the truth about the known part may differ."""
    unmeasured: int = 0
    """Nodes of which nothing is known."""


class Run(Named, frozen=True, kw_only=True):
    """One run of a job or an application. ``end`` None: it goes on."""

    start: float
    end: float | None = None
    uids: Runs = ()
    pauses: tuple[tuple[float, float | None], ...] = ()
    unplaced: float = 0.0
    """Seconds of suspension of which nobody told when they were."""
    doubt: str = ""
    """What is wrong with what was told."""
    summary: Summary | None = None

    def spans(self, now: float) -> list[Span]:
        """When it ran, without the times that it was suspended."""
        end = now if self.end is None else self.end
        found, at = list[Span](), self.start
        for pause, resumed in self.pauses:
            if pause > at:
                found.append((at, min(pause, end)))
            at = max(at, end if resumed is None else resumed)
        if end > at:
            found.append((at, end))
        return found

    def seconds(self, now: float) -> float:
        """How long it ran."""
        return max(0.0, sum(end - start for start, end in self.spans(now)) - self.unplaced)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what was told: how many were taken, and those that were not, with why."""

    taken: int
    refused: tuple[tuple[str, str], ...] = ()


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """When and where a job or an application ran: several times if it was suspended."""

    uids: Uids
    spans: Sequence[Span]
