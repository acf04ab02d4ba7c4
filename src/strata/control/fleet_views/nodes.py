"""Nodes: how their owners describe them, and the state that they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from strata.control.fleet_views.brakes import HoldView
from strata.control.fleet_views.desires import DesireView
from strata.control.texts import PLAIN, In, LabelText, NodeNameText, Out
from strata.core.node import Interface

State = Literal["ready", "converging", "waiting", "faulted", "held", "frozen", "unreachable", "unmanaged", "unknown"]
"""ready: at its goal; waiting: for a guard, a budget or a back-off; unreachable: no plan leads to its goal;
unmanaged: nobody desires anything; unknown: not yet observed."""


class InterfaceSpec(In, frozen=True, kw_only=True):
    """A network port of a node: its MAC, or where it is cabled. Without an address it is given one."""

    mac: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5})?$(?!\n)")] = ""
    address: Annotated[str, Meta(pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3})?$(?!\n)")] = ""
    name: Annotated[str, Meta(pattern=PLAIN, max_length=63)] = ""
    port: Annotated[str, Meta(pattern=PLAIN, max_length=255)] = ""
    """`remote-id/circuit-id`, as a relay agent tells."""


Interfaces = Annotated[tuple[InterfaceSpec, ...], Meta(max_length=16)]


class NodeSpec(In, frozen=True, kw_only=True):
    """A node as its owners describe it."""

    name: NodeNameText
    location: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]*$(?!\n)", max_length=64)] = ""
    nid: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    role: LabelText = "compute"
    architecture: LabelText = "x86_64"
    labels: Annotated[Mapping[LabelText, LabelText], Meta(max_length=64)] = {}
    bmc: Annotated[str, Meta(pattern=PLAIN, max_length=256)] = ""
    interfaces: Interfaces = ()


class NodePatch(In, frozen=True, kw_only=True):
    """The fields of a node to change; a label set to null goes."""

    location: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]*$(?!\n)", max_length=64)] | UnsetType = UNSET
    nid: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None = UNSET
    role: LabelText | UnsetType = UNSET
    architecture: LabelText | UnsetType = UNSET
    labels: Annotated[Mapping[LabelText, LabelText | None], Meta(max_length=64)] | UnsetType = UNSET
    bmc: Annotated[str, Meta(pattern=PLAIN, max_length=256)] | UnsetType = UNSET
    interfaces: Interfaces | UnsetType = UNSET


class SilenceView(Out, frozen=True, kw_only=True):
    """Who should see a variable and does not, since when, and what the last look came to."""

    driver: str
    since: float
    why: str


class FactView(Out, frozen=True, kw_only=True):
    """What was last seen. ``value`` is ``unknown`` past its age; ``age`` is seconds since ``seen`` (null: never).
    ``implied``: ``source`` names the variable whose fact proves it. ``silence`` null: the last look showed something.
    """

    value: str
    seen: float | None
    source: str
    age: float | None
    implied: bool = False
    silence: SilenceView | None = None


class DoingView(Out, frozen=True, kw_only=True):
    """The mutation under way."""

    mutation: str
    since: float
    deadline: float


class NodeView(Out, frozen=True, kw_only=True):
    """A node with its state. ``revision`` is that of its description (what If-Match compares); ``stamp`` changes
    with anything in the view but ages (the fleet's own change counter will do)."""

    name: str
    uid: int
    location: str
    nid: int | None
    role: str
    architecture: str
    labels: Mapping[str, str]
    bmc: str
    groups: tuple[str, ...]
    interfaces: tuple[Interface, ...] = ()
    state: State
    facts: Mapping[str, FactView]
    desires: Mapping[str, DesireView]
    hold: HoldView | None
    frozen: str
    """The scope of the freeze that covers it, or empty."""
    doing: DoingView | None
    fault: str
    revision: int
    stamp: int


class NodeQuery(Out, frozen=True, kw_only=True):
    """Which nodes, how many, in which order. ``fields`` empty: all. ``sort``: a field of ``NodeView`` with a plain
    value (name, uid, nid, location, role, architecture, state); a leading ``-`` reverses."""

    select: str = "*"
    state: State | None = None
    sort: str = "name"
    limit: int = 1000
    after: str = ""
    fields: tuple[str, ...] = ()
    """What the caller will show: the facade may leave costly parts of other fields empty."""


class NodePage(Out, frozen=True, kw_only=True):
    """A part of the answer; ``next`` is the ``after`` of the next part. ``revision`` is the fleet's change counter."""

    items: tuple[NodeView, ...]
    next: str | None
    total: int
    revision: int


class FoldedView(Out, frozen=True, kw_only=True):
    """Many nodes in few words."""

    nodeset: str
    total: int
    by_state: Mapping[State, str]
    revision: int
