"""Rollouts, as they are asked for, kept and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.intset import Runs
from strata.core.node import LimitBucket
from strata.core.texts import (
    DocumentNameText,
    GroupNameText,
    In,
    NoteText,
    Out,
    ReasonText,
    SelectText,
    ValueText,
    VariableText,
    WantedMap,
    check_wanted,
)
from strata.fleet.plans.records import PlanClass

AmountText = Annotated[str, Meta(pattern=r"^([0-9]{1,7}|[0-9]{1,2}%|100%)$(?!\n)", max_length=7)]
"""So many nodes (``20``), or a part of them (``10%``)."""
CheckName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,62}$(?!\n)", max_length=63)]

When = Literal["now", "job-end", "next-reboot"]
State = Literal[
    "running", "paused", "stopped", "rolling-back", "aborting", "finishing", "done", "rolled-back", "aborted"
]
"""``paused``: by a person. ``stopped``: by failures. Both begin with nobody until a person resumes or aborts it."""
ENDED: frozenset[State] = frozenset(("done", "rolled-back", "aborted"))


class RolloutManner(In, frozen=True, kw_only=True):
    """How carefully many nodes are changed."""

    waves: Annotated[tuple[AmountText, ...], Meta(min_length=1, max_length=100)] = ("1", "10%", "100%")
    """How many nodes each wave takes, of those of its stage (``order``); the last is repeated until all have had
    their turn. The first is the canary."""
    max_unavailable: AmountText = "10%"
    """The most nodes out of service at once by changes, these or others, from draining until they are back. Of each
    group in ``groups``; without, of the nodes of the rollout."""
    groups: Annotated[tuple[GroupNameText, ...], Meta(max_length=1000)] = ()
    """Groups of which each has ``max_unavailable`` for itself. Nodes in none of them have it together."""
    order: Annotated[
        tuple[Annotated[tuple[GroupNameText, ...], Meta(min_length=2, max_length=100)], ...], Meta(max_length=100)
    ] = ()
    """Groups one after the other: of each chain, the nodes of a group begin when those of the one before are through.
    Every stage has waves of its own. Nodes in none of them are in the first stage."""
    soak: Annotated[float, Meta(ge=0, le=7 * 86400)] = 60.0
    """Seconds for which all nodes of a wave must have been ready before the next one begins."""
    require: Annotated[Mapping[VariableText, ValueText], Meta(max_length=16)] = {}
    """Facts that every node must show to count as ready (``health=ok``)."""
    checks: Annotated[tuple[CheckName, ...], Meta(max_length=16)] = ()
    """The site's own checks (``rollout_checks`` in the configuration file), run after each wave has soaked."""
    max_failures: AmountText = "5%"
    """How many nodes may fail, of those that have had their turn. One more stops it."""
    on_failure: Literal["rollback", "stop"] = "rollback"
    """What follows then: all nodes go back to what was wanted of them before; or nothing, until a person decides."""
    when: When = "now"
    """``now``: nodes are drained in their turn, and changed when their last job has ended. ``job-end``: no node is
    drained while a job runs on it, until ``drain_after`` is over. ``next-reboot``: a node is changed when it is down,
    whoever took it there."""
    drain_after: Annotated[float, Meta(ge=0, le=365 * 86400)] = 86400.0
    """``job-end``: seconds after the beginning of a wave after which those of its nodes are drained that had a job all
    the time: where the queue is never empty the scheduler gives them the next one at once, and their turn would never
    come."""


class RolloutSpec(RolloutManner, frozen=True, kw_only=True):
    """What is to be changed, on which nodes, and how carefully."""

    select: SelectText | None = None
    """The nodes, as they are when it starts. None: those that ``document`` selects."""
    set: WantedMap
    """What is wanted of them."""
    document: DocumentNameText | None = None
    """The desire document that says it in the end; the nodes themselves say it only meanwhile. None: the nodes go on
    saying it, as after ``strata node set``."""
    note: NoteText = ""

    def __post_init__(self) -> None:
        check_wanted(self.set)


class RolloutPolicy(RolloutManner, frozen=True, kw_only=True):
    """How a commit of the configuration reaches nodes: as the repository says it; there is one."""

    name: Literal["commits"] = "commits"
    commits: Literal["disruptive", "all"] = "disruptive"
    """Which commits go in waves: those that take something away from nodes (power, the running image, jobs), or all of
    which nodes are changed."""


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """What was set on nodes themselves before."""

    uids: Runs
    set: Mapping[str, tuple[str, ...]]
    """Variables that are not in it were not set on them."""


class RolloutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a rollout."""

    time: float
    author: str
    text: str


class RolloutCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are where."""

    nodes: int = 0
    begun: int = 0
    """Had their turn."""
    ready: int = 0
    failed: int = 0
    left: int = 0
    """Somebody wanted something else of them meanwhile: they are left alone."""
    excused: int = 0
    failed_nodes: str = ""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rollout as it is kept. All that it does next follows from this and from what nodes are and want."""

    spec: RolloutSpec
    set: Mapping[str, tuple[str, ...]]
    """What is wanted, in its one form."""
    author: str
    started: float
    waves: tuple[Runs, ...]
    """Uids, wave by wave."""
    stages: tuple[int, ...]
    """The stage that each wave is of."""
    buckets: tuple[LimitBucket, ...]
    before: tuple[Before, ...]
    seen: int
    """The store's revision up to which nobody else has a say: who sets these variables on a node later keeps it."""
    state: State = "running"
    wave: int = 0
    """The last one that was begun, from 0."""
    wave_began: float | None = None
    """When that was; None: with the rollout."""
    soaking: float | None = None
    """Since when all nodes of the wave are ready."""
    checked: tuple[str, ...] = ()
    """Checks that are over for this wave."""
    excused: Runs = ()
    """Nodes that are not waited for, and whose failure does not count, as they were broken before their turn came. They
    get the change at the very end."""
    forgiven: Runs = ()
    """Nodes that failed before a person had it go on: they want what they wanted before, and do not count."""
    reason: str = ""
    """Why it is not running."""
    ended: float | None = None
    turned: RolloutCounts | None = None
    """How it stood when it began to go back."""
    final: RolloutCounts | None = None
    """How it stood when it was over."""
    events: tuple[RolloutEvent, ...] = ()


class BucketUse(Out, frozen=True, kw_only=True):
    """One limit, and how much of it is used by whatever changes."""

    name: str
    nodes: int
    most: int
    out: int


class WaveView(Out, frozen=True, kw_only=True):
    """One wave."""

    count: int
    nodeset: str
    stage: int


class RolloutView(Out, frozen=True, kw_only=True):
    """A rollout, and how far it is."""

    name: str
    state: State
    author: str
    started: float
    ended: float | None
    spec: RolloutSpec
    wave: int
    """Which wave is under way, from 1."""
    waves: int
    counts: RolloutCounts
    waits_for: str
    """What it waits for now, in words."""
    reason: str
    buckets: tuple[BucketUse, ...]
    events: tuple[RolloutEvent, ...]


class RolloutPlan(Out, frozen=True, kw_only=True):
    """What a rollout would do. Nothing is changed."""

    nodes: int
    unchanged: int
    """Nodes that are so already, and are in no wave."""
    waves: tuple[WaveView, ...]
    buckets: tuple[BucketUse, ...]
    classes: tuple[PlanClass, ...]
    disrupted: int
    """Nodes that leave service for it."""
    seconds: float
    """How long it takes about, by what its mutations took here or cost by declaration, the limits and the soaking, and
    without jobs to wait for. A simulation knows better."""
    warnings: tuple[str, ...]


class PauseRequest(In, frozen=True, kw_only=True):
    """Begin with no more nodes."""

    reason: ReasonText


class AbortRequest(In, frozen=True, kw_only=True):
    """End it."""

    reason: ReasonText
    rollback: bool = False
    """Whether nodes that have it go back to what was wanted of them before. Those that have not begun do so anyway."""


def amount(text: str, of: int) -> int:
    """``20`` or ``10%`` of so many; a part is rounded down."""
    number, percent, _ = text.partition("%")
    if not percent:
        return int(number)
    return of * int(number) // 100
