"""What the API shows and takes of the fleet: the records behind the REST contract. Knows no HTTP and no engine.

Times are Unix seconds. A cursor here is plain text that the facade chose; the API makes it opaque.
The records about the service itself (audit, store, credentials) are in ``strata.control.service_views``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strata.control.texts import (
    PLAIN,
    DocumentNameText,
    In,
    LabelText,
    NodeNameText,
    NoteText,
    Out,
    ReasonText,
    RevisionNumber,
    ScopeText,
    SelectText,
    VariableText,
    WantedMap,
    check_wanted,
)
from strata.core.node import Interface

State = Literal["ready", "converging", "waiting", "faulted", "held", "frozen", "unreachable", "unmanaged", "unknown"]
"""ready: at its goal; waiting: for a guard, a budget or a back-off; unreachable: no plan leads to its goal;
unmanaged: nobody desires anything; unknown: not yet observed."""


# nodes


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


class FactView(Out, frozen=True, kw_only=True):
    """What was last seen. ``value`` is ``unknown`` past its age; ``age`` is seconds since ``seen`` (null: never)."""

    value: str
    seen: float | None
    source: str
    age: float | None


class DesireView(Out, frozen=True, kw_only=True):
    """What is wanted; any of ``values`` will do. ``origin``: ``node`` or the document's name."""

    values: tuple[str, ...]
    author: str
    revision: int
    origin: str


class HoldView(Out, frozen=True, kw_only=True):
    """A person took ``node`` out of automation."""

    node: str
    reason: str
    author: str
    since: float


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


class NodeResult(Out, frozen=True, kw_only=True):
    """What happened to one node of many. ``ok`` false: ``error`` says why and ``status`` is HTTP's word for it."""

    node: str
    ok: bool
    status: int = 200
    error: str = ""


class Blocker(Out, frozen=True, kw_only=True):
    """What holds a node up: kind is guard, budget, hold, freeze, back-off, fault, timeout, lease..."""

    kind: str
    name: str
    detail: str


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


class StepView(Out, frozen=True, kw_only=True):
    """One mutation of a plan."""

    mutation: str
    variable: str
    to: str
    cost: float
    destructive: bool = False
    guards: tuple[str, ...] = ()


PlanStatus = Literal["done", "plan", "observe", "unreachable"]


class PlanView(Out, frozen=True, kw_only=True):
    """The cheapest way from what is to what is wanted, or why there is none."""

    node: str
    status: PlanStatus
    steps: tuple[StepView, ...] = ()
    observe: tuple[str, ...] = ()
    cost: float = 0.0
    reason: str = ""


class TransitionView(Out, frozen=True, kw_only=True):
    """One change of one fact."""

    time: float
    variable: str
    old: str
    new: str
    source: str
    cause: str


class HistoryPage(Out, frozen=True, kw_only=True):
    """Changes of a node, newest first."""

    items: tuple[TransitionView, ...]
    next: str | None


class PastView(Out, frozen=True, kw_only=True):
    """The facts of a node as they were at ``time``."""

    node: str
    time: float
    facts: Mapping[str, str]


# desires and documents


class DesireChange(In, frozen=True, kw_only=True):
    """Set or unset desires on every selected node. ``if_match``: the newest revision of them that you have seen."""

    select: SelectText
    set: WantedMap = msgspec.field(default_factory=dict)
    unset: Annotated[tuple[VariableText, ...], Meta(max_length=64)] = ()
    if_match: RevisionNumber | None = None

    def __post_init__(self) -> None:
        check_wanted(self.set)


class DesireResult(Out, frozen=True, kw_only=True):
    """Per-node results; ``changed`` counts the nodes whose desires are now others than before."""

    results: tuple[NodeResult, ...]
    changed: int
    revision: int


class DocumentSpec(In, frozen=True, kw_only=True):
    """A named desire for whatever ``select`` matches, now and later. A higher priority wins."""

    name: DocumentNameText
    select: SelectText
    set: WantedMap
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0

    def __post_init__(self) -> None:
        check_wanted(self.set)


class DocumentView(Out, frozen=True, kw_only=True):
    """A document as it stands; ``matches`` counts the nodes that it selects now."""

    name: str
    select: str
    set: Mapping[str, tuple[str, ...]]
    priority: int
    author: str
    revision: int
    matches: int


class ApplyRequest(In, frozen=True, kw_only=True):
    """The documents that should be there. ``prune``: and no others. ``dry_run``: only say what would change."""

    documents: Annotated[tuple[DocumentSpec, ...], Meta(max_length=10_000)]
    prune: bool = False
    dry_run: bool = False


class DocumentChange(Out, frozen=True, kw_only=True):
    """What an apply did, or would do, to one document."""

    name: str
    action: Literal["created", "changed", "unchanged", "deleted"]
    nodes: int
    """How many nodes it selects."""
    detail: str = ""


class ApplyReport(Out, frozen=True, kw_only=True):
    """What changed."""

    changes: tuple[DocumentChange, ...]
    dry_run: bool
    revision: int


class PlanRequest(In, frozen=True, kw_only=True):
    """What would happen to the selected nodes if these desires were set (and these documents applied)?"""

    select: SelectText = "*"
    set: WantedMap = msgspec.field(default_factory=dict)
    documents: Annotated[tuple[DocumentSpec, ...], Meta(max_length=1000)] = ()

    def __post_init__(self) -> None:
        check_wanted(self.set)


class PlanClass(Out, frozen=True, kw_only=True):
    """Nodes with the same way to go."""

    count: int
    nodeset: str
    status: PlanStatus
    steps: tuple[StepView, ...]
    cost: float
    reason: str = ""


class PlanReport(Out, frozen=True, kw_only=True):
    """A dry run over many nodes. ``totals``: mutation → number of nodes."""

    nodes: int
    classes: tuple[PlanClass, ...]
    totals: Mapping[str, int]


# holds, freezes, groups


class HoldRequest(In, frozen=True, kw_only=True):
    """Take the selected nodes out of automation."""

    select: SelectText
    reason: ReasonText


class RetryRequest(In, frozen=True, kw_only=True):
    """Try the selected nodes again now."""

    select: SelectText


class ManyResult(Out, frozen=True, kw_only=True):
    """A change of many nodes: how many changed, and what went wrong with which."""

    changed: int
    nodeset: str
    errors: tuple[NodeResult, ...] = ()
    revision: int = 0


class HoldPage(Out, frozen=True, kw_only=True):
    """A part of all holds, by node name."""

    items: tuple[HoldView, ...]
    next: str | None
    total: int


class FreezeRequest(In, frozen=True, kw_only=True):
    """Start nothing for ``scope``: ``fleet``, ``group:NAME`` or ``node:NAME``."""

    scope: ScopeText
    reason: ReasonText


class FreezeView(Out, frozen=True, kw_only=True):
    """A brake that is on."""

    scope: str
    reason: str
    author: str
    since: float


class GroupSpec(In, frozen=True, kw_only=True):
    """A group's members (a nodeset) and what it is for. ``members`` unset: those that it has stay."""

    members: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] | UnsetType = UNSET
    description: NoteText = ""


class MemberChange(In, frozen=True, kw_only=True):
    """Nodesets to add and remove; removal comes last."""

    add: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] = ""
    remove: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] = ""


class GroupView(Out, frozen=True, kw_only=True):
    """A group. ``members`` is folded."""

    name: str
    description: str
    members: str
    count: int
    revision: int


# jobs, watch


class JobError(Out, frozen=True, kw_only=True):
    """What went wrong with one node of a job."""

    node: str
    detail: str


class JobView(Out, frozen=True, kw_only=True):
    """Work on many nodes: accepted, tracked, cancellable. ``errors`` holds the first 100."""

    id: str
    kind: str
    state: Literal["pending", "running", "done", "failed", "cancelled"]
    total: int
    done: int
    failed: int
    errors: tuple[JobError, ...]
    author: str
    created: float
    finished: float | None


class JobPage(Out, frozen=True, kw_only=True):
    """A part of all jobs, newest first."""

    items: tuple[JobView, ...]
    next: str | None


EventKind = Literal["transition", "desire", "hold", "freeze", "node", "job", "compacted"]


class WatchEvent(Out, frozen=True, kw_only=True):
    """One change. All events of one revision come together; resume after ``revision``."""

    revision: int
    event: EventKind
    data: Mapping[str, Any]
