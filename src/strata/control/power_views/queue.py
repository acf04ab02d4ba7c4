"""The workload manager's queue, as it is told and shown."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.control.power_views.told import JobIdText, UnixTime, UserText
from strata.control.texts import PLAIN, In, Out

QueueText = Annotated[str, Meta(pattern=PLAIN, max_length=64)]
TimeLimit = Annotated[float, Meta(ge=0, le=1e9)]
CapWatts = Annotated[float, Meta(gt=0, le=1e6)]


class WaitingJob(In, frozen=True, kw_only=True):
    """A job that would start if it had nodes and power."""

    job: JobIdText
    nodes: Annotated[int, Meta(ge=1, le=10_000_000)]
    queue: QueueText = ""
    """The partition. Policies with capped queues know it by this name."""
    user: UserText = ""
    time_limit: TimeLimit | None = None
    """Seconds that it may run; None: it has no limit."""


class RunningJob(In, frozen=True, kw_only=True):
    """What a policy cannot see of a job that runs."""

    job: JobIdText
    ends: UnixTime | None = None
    """When its time limit is over; None: never."""
    cap: CapWatts | None = None
    """Watts of a node that its user asked not to exceed; None: nobody did."""


class QueueTold(In, frozen=True, kw_only=True):
    """The whole queue at one moment."""

    waiting: Annotated[tuple[WaitingJob, ...], Meta(max_length=10_000)] = ()
    """Whoever is to start first comes first."""
    running: Annotated[tuple[RunningJob, ...], Meta(max_length=20_000)] = ()
    good_for: Annotated[float, Meta(ge=10, le=86_400)] = 600.0
    """Seconds after which nobody goes by it any more."""


class WaitingView(Out, frozen=True, kw_only=True):
    """As in ``WaitingJob``."""

    job: str
    nodes: int
    queue: str
    user: str
    time_limit: float | None


class RunningView(Out, frozen=True, kw_only=True):
    """As in ``RunningJob``."""

    job: str
    ends: float | None
    cap: float | None


class QueueView(Out, frozen=True, kw_only=True):
    """The queue as it was last told of. ``time`` None: it never was."""

    time: float | None
    author: str
    good_until: float | None
    fresh: bool
    """Whether policies go by it."""
    waiting: tuple[WaitingView, ...]
    running: tuple[RunningView, ...]
