"""What a workload manager tells of jobs."""

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
