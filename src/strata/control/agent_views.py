"""What the API shows and takes of agents: commands run on nodes, image sets, machines that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from strata.control.texts import PLAIN, In, LabelText, NodeNameText, Out, SelectText
from strata.provisioning.personality.image_set import Member

ArgvText = Annotated[str, Meta(max_length=4096, pattern=r"^[^\u0000]*$")]


class ExecRequest(In, frozen=True, kw_only=True):
    """Run ``argv`` on every selected node. ``where``: empty for the first member of the node's image set, ``minos``, or
    a member's name."""

    select: SelectText
    argv: Annotated[tuple[ArgvText, ...], Meta(min_length=1, max_length=256)]
    where: Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9_.-]{0,62})?$(?!\n)", max_length=63)] = ""
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class ExecResult(Out, frozen=True, kw_only=True):
    """What came of it on one node. ``exit`` null: it did not run to its end, and ``error`` says why."""

    node: str
    exit: int | None
    output: str
    """Text; what is none is replaced. Standard output and standard error together, as they came."""
    truncated: bool
    error: str


class ExecView(Out, frozen=True, kw_only=True):
    """A run over many nodes. ``items``: the results after ``after``, in the order in which they came; ``next`` is the
    ``after`` for those that follow."""

    id: str
    argv: tuple[str, ...]
    author: str
    created: float
    state: Literal["running", "done", "cancelled"]
    total: int
    done: int
    failed: int
    items: tuple[ExecResult, ...]
    next: int


class ImageSetSpec(In, frozen=True, kw_only=True):
    """What a set is made of."""

    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=16)]
    description: Annotated[str, Meta(pattern=PLAIN, max_length=500)] = ""


class ImageSetView(Out, frozen=True, kw_only=True):
    """A set, and what it stands for now. ``digest`` empty: it cannot be run, and ``problem`` says why."""

    name: str
    description: str
    members: tuple[Member, ...]
    digest: str
    problem: str
    releases: Mapping[str, str]
    """Member → digest of the image that its tag stands for."""
    wanted: int
    """Nodes whose owners want it."""
    running: int
    """Nodes that have it, as it is now."""
    revision: int


class MemberState(Out, frozen=True, kw_only=True):
    """One image of a node's set, as it runs."""

    name: str
    state: str
    ready: bool
    restarts: int
    since: float
    reason: str


class AgentView(Out, frozen=True, kw_only=True):
    """A node's agent, as this controller knows it. ``attached`` false: what it last said."""

    node: str
    attached: bool
    contact: float | None
    """When it last spoke (Unix seconds); null: not since this controller runs."""
    since: float | None
    """When it attached."""
    generation: int
    version: str
    profile: str
    uptime: float
    cpu_s: float
    set: str
    set_digest: str
    state: str
    reason: str
    members: tuple[MemberState, ...]
    loaded: tuple[str, ...]
    healthy: bool
    problems: tuple[str, ...]
    metrics: Mapping[str, Any]
    failure: str
    """What went wrong with the last command that failed."""
    pending: int
    """Commands that it has not answered yet."""


class InventoryView(Out, frozen=True, kw_only=True):
    """What a node said of its hardware."""

    node: str
    time: float
    inventory: Mapping[str, Any]


class UnknownMachine(Out, frozen=True, kw_only=True):
    """A machine that nobody knows, as it describes itself."""

    mac: str
    macs: tuple[str, ...]
    uuid: str
    serial: str
    peer: str
    first: float
    last: float
    inventory: Mapping[str, Any]


class AdoptMachine(In, frozen=True, kw_only=True):
    """Make a node of it."""

    name: NodeNameText
    address: Annotated[str, Meta(pattern=r"^[0-9.]{0,15}$(?!\n)", max_length=15)] = ""
    """Its address on the boot network; empty: one that is free is given."""
    location: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]*$(?!\n)", max_length=64)] = ""
    role: LabelText = "compute"
    bmc: Annotated[str, Meta(pattern=PLAIN, max_length=256)] = ""


class UnknownMachines(Out, frozen=True, kw_only=True):
    """All of them, the newest first."""

    items: tuple[UnknownMachine, ...]


class ImageSetList(Out, frozen=True, kw_only=True):
    """All sets, by name."""

    items: tuple[ImageSetView, ...]
