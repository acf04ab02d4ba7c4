"""Nodes: how their owners describe them, the state that they are in, and why they are not at their goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strata.core.node import Node
from strata.core.state import State
from strata.core.texts import PLAIN, In, LabelText, NodeNameText, Out
from strata.engine.explain import Blocker
from strata.engine.facts import Silence
from strata.fleet.brakes.records import HoldView
from strata.fleet.desires.records import DesireView


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


class NodeStatement(NodePatch, frozen=True, kw_only=True):
    """What a file says of a node. What it does not say stays; labels and interfaces are all that there are."""

    name: NodeNameText


class FactView(Out, frozen=True, kw_only=True):
    """What was last seen. ``value`` is ``unknown`` past its age; ``age`` is seconds since ``seen`` (null: never).
    ``implied``: ``source`` names the variable whose fact proves it. ``silence`` null: the last look showed something.
    """

    value: str
    seen: float | None
    source: str
    age: float | None
    implied: bool = False
    silence: Silence | None = None
    detail: str = ""
    """More of the value, where somebody knows more: which build of an image. Only where one node is asked for."""


class DoingView(Out, frozen=True, kw_only=True):
    """The mutation under way."""

    mutation: str
    since: float
    deadline: float


class NodeView(Node, frozen=True, kw_only=True, omit_defaults=False):
    """A node with its state. ``revision`` is that of its description (what If-Match compares); ``stamp`` changes
    with anything in the view but ages (the fleet's own change counter will do)."""

    groups: tuple[str, ...]
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


class EncodedNode(NamedTuple):
    """A ``NodeView`` as JSON, and what its entity tag is made of."""

    body: bytes
    revision: int
    stamp: int


class EncodedPage(Out, frozen=True, kw_only=True):
    """A ``NodePage`` of which the nodes are JSON already."""

    items: tuple[msgspec.Raw, ...]
    next: str | None
    total: int
    revision: int


class FoldedView(Out, frozen=True, kw_only=True):
    """Many nodes in few words."""

    nodeset: str
    total: int
    by_state: Mapping[State, str]
    revision: int


class NextStep(Out, frozen=True, kw_only=True):
    """What comes next: a mutation, or an observation of variables. ``when`` null: as soon as nothing blocks."""

    mutation: str | None = None
    observe: tuple[str, ...] = ()
    when: float | None = None


class WhyView(Out, frozen=True, kw_only=True):
    """Why a node is not at its goal, in plain words."""

    node: str
    state: State
    summary: str
    lines: tuple[str, ...] = ()
    next: NextStep | None = None
    blocked_by: tuple[Blocker, ...] = ()


class WhyGroup(Out, frozen=True, kw_only=True):
    """Nodes of which the same is to be said."""

    nodes: str
    """Folded."""
    count: int
    state: State
    summary: str
    lines: tuple[str, ...] = ()
    next: NextStep | None = None
    """Of the one among them whose turn comes first."""
    blocked_by: tuple[Blocker, ...] = ()


class WhyManyView(Out, frozen=True, kw_only=True):
    """Why nodes are not at their goals: those that are not, by reason, the most first; then the others."""

    items: tuple[WhyGroup, ...]
    total: int
    unasked: int = 0
    """Nodes that are not at their goal and were left out, because they are too many."""
