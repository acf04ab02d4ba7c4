"""The workload manager's queue, as it is told and shown."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import PLAIN, In, Out
from strata.power.accounting.records import JobIdText, UnixTime, UserText

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


class Queue(Out, frozen=True, kw_only=True):
    """The queue as it was last told of; those that are to start first come first. ``time`` None: it never was."""

    time: float | None = None
    author: str = ""
    good_until: float | None = None
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()

    def is_fresh(self, now: float) -> bool:
        """A queue of yesterday says nothing about today."""
        return self.good_until is not None and now < self.good_until


class QueueView(Queue, frozen=True, kw_only=True):
    """And whether policies go by it."""

    fresh: bool
