"""Flows, the stages of a system, and what is shown of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import (
    NAME,
    PLAIN,
    In,
    NoteText,
    Out,
    ReasonText,
    SelectText,
    VariableText,
    WantedMap,
    check_wanted,
)
from strata.fleet.operations.records import Operation

FlowName = Annotated[str, Meta(pattern=NAME, max_length=63)]
StepName = Annotated[str, Meta(pattern=NAME, max_length=63)]
ArgvText = Annotated[str, Meta(pattern=r"^[^\u0000]*$", max_length=4096)]
WhereText = Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9_.-]{0,62})?$(?!\n)", max_length=63)]
AllowText = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,3})?%?$(?!\n)", max_length=14)]
Timeout = Annotated[float, Meta(gt=0, le=30 * 86_400)]
MOST_STEPS = 100

_PERCENT = re.compile(r"([0-9.]+)%\Z")


class FlowStep(In, frozen=True, kw_only=True, omit_defaults=True):
    """One step: ``set`` and ``unset`` change desires, ``until`` waits for facts (without it: for what is set), ``exec``
    is run by the nodes' agents, ``run`` is a command of the site on the controller, ``revoke`` takes the nodes'
    certificates away."""

    name: StepName
    nodes: SelectText = "*"
    when: Annotated[str, Meta(pattern=PLAIN, max_length=1000)] = ""
    """Further terms: the step is about the nodes for which these hold when it begins. Nobody: it is skipped."""
    set: WantedMap = msgspec.field(default_factory=dict)
    unset: Annotated[tuple[VariableText, ...], Meta(max_length=64)] = ()
    until: WantedMap | None = None
    exec: Annotated[tuple[ArgvText, ...], Meta(max_length=256)] = ()
    where: WhereText = ""
    """Where ``exec`` is run: empty for the personality's first member, ``minos``, or a member's name."""
    run: Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$(?!\n)", max_length=63)] = ""
    revoke: bool = False
    timeout: Timeout = 3600.0
    """Seconds for the whole step, at each try."""
    retries: Annotated[int, Meta(ge=0, le=20)] = 0
    allow: AllowText = "0"
    """Nodes that may fail: a number, or a percentage of the step's (``5%``)."""
    repeatable: bool = False
    """``exec`` and ``run``: doing it twice is the same as once, so that it is done again after a crash."""

    def __post_init__(self) -> None:
        check_wanted(self.set)
        check_wanted(self.until or {})

    @property
    def waits_for(self) -> WantedMap:
        """The facts that end it."""
        return self.set if self.until is None else self.until

    def allowed(self, count: int) -> int:
        """How many of so many nodes may fail."""
        if part := _PERCENT.match(self.allow):
            return int(count * min(100.0, float(part[1])) / 100)
        return int(float(self.allow))

    @property
    def does(self) -> str:
        """In words."""
        if self.exec:
            return f"exec {' '.join(self.exec)}"[:100]
        if self.run:
            return f"run {self.run}"
        if self.revoke:
            return "revoke certificates"
        set_ = [f"set {_words(self.set)}"] if self.set else []
        unset = [f"unset {' '.join(self.unset)}"] if self.unset else []
        waits = [f"wait for {_words(self.until)}"] if self.until else []
        return ", ".join([*set_, *unset, *waits])


def _words(wanted: WantedMap) -> str:
    return " ".join(f"{name}={value if isinstance(value, str) else '|'.join(value)}" for name, value in wanted.items())


class FlowSpec(In, frozen=True, kw_only=True, omit_defaults=True):
    """A sequence of steps, one after the other."""

    steps: Annotated[tuple[FlowStep, ...], Meta(min_length=1, max_length=MOST_STEPS)]
    description: NoteText = ""


class FlowEntry(FlowSpec, frozen=True, kw_only=True, omit_defaults=True):
    """The same, with its name: as the repository says it."""

    name: FlowName


def check(steps: Sequence[FlowStep], place: Mapping[str, str] | None = None) -> None:
    """Raise ``BadRequest`` unless each step does just one thing. ``place``: where each is written."""
    seen: set[str] = set()
    for step in steps:
        where = (place or {}).get(step.name, f"step {step.name}")
        kinds = [bool(step.set or step.unset or step.until), bool(step.exec), bool(step.run), step.revoke]
        if sum(kinds) != 1:
            hint = "one of: set, unset and until; exec; run; revoke"
            raise BadRequest("a step must do exactly one thing", where=where, hint=hint)
        if step.name in seen:
            raise BadRequest("two steps have this name", where=where)
        seen.add(step.name)


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, as it is stored."""

    spec: FlowSpec
    author: str


class FlowView(Out, frozen=True, kw_only=True):
    """A flow."""

    name: str
    description: str
    steps: tuple[FlowStep, ...]
    author: str
    revision: int


class FlowRun(In, frozen=True, kw_only=True):
    """Run a flow. ``start``: from this step on. ``now``: without waiting for anything, for which ``reason`` and
    ``confirm`` are needed."""

    start: Annotated[str, Meta(pattern=PLAIN, max_length=63)] = ""
    now: bool = False
    reason: NoteText = ""
    confirm: Annotated[str, Meta(max_length=200)] = ""


class StepPlan(Out, frozen=True, kw_only=True):
    """What a step would do, as things are now: ``totals`` is mutation → number of nodes."""

    name: str
    does: str
    nodes: int
    nodeset: str
    totals: Mapping[str, int]
    disrupts: int
    """Nodes of which something is taken away on the way."""
    seconds: float
    """How long the longest way should take, without the waiting for budgets and jobs."""


class FlowPlan(Out, frozen=True, kw_only=True):
    """What a run would do. ``confirm``: what must be said for it; empty: nothing."""

    flow: str
    steps: tuple[StepPlan, ...]
    confirm: str = ""


StepWord = Literal["pending", "running", "done", "skipped", "failed"]


class StepState(Out, frozen=True, kw_only=True):
    """How far a step is."""

    name: str
    does: str = ""
    state: StepWord = "pending"
    nodes: int = 0
    reached: int = 0
    failed: int = 0
    began: float | None = None
    ended: float | None = None


class FlowStatus(Out, frozen=True, kw_only=True):
    """How far a run is."""

    flow: str
    operation: Operation
    steps: tuple[StepState, ...]


class Stage(In, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes of a system that are started and stopped together."""

    name: StepName
    nodes: SelectText
    after: Annotated[tuple[StepName, ...], Meta(max_length=64)] = ()
    """Stages that must be up before this one is started, and down only after it."""
    start: WantedMap = msgspec.field(default_factory=lambda: {"power": "on"})
    ready: WantedMap | None = None
    """The facts that show that it is up. Without them: what ``start`` sets."""
    stop: WantedMap = msgspec.field(default_factory=lambda: {"power": "off"})
    timeout: Timeout = 3600.0
    retries: Annotated[int, Meta(ge=0, le=20)] = 0
    allow: AllowText = "0"
    """Nodes that may fail to start: a number, or a percentage (``5%``)."""

    def __post_init__(self) -> None:
        for wanted in (self.start, self.ready or {}, self.stop):
            check_wanted(wanted)


class SystemSpec(In, frozen=True, kw_only=True):
    """What a whole system is made of."""

    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=MOST_STEPS)]


class SystemEntry(SystemSpec, frozen=True, kw_only=True):
    """The same, as the repository says it; there is one."""

    name: Literal["stages"] = "stages"


class SystemRun(In, frozen=True, kw_only=True):
    """Start or stop a system. ``stages``: only these, of a start with all that they need, of a stop with all that need
    them. ``confirm``: needed to stop."""

    stages: Annotated[tuple[StepName, ...], Meta(max_length=MOST_STEPS)] = ()
    confirm: Annotated[str, Meta(max_length=200)] = ""


class StageState(Out, frozen=True, kw_only=True):
    """How a stage is."""

    name: str
    after: tuple[str, ...]
    nodes: int
    up: int
    """Nodes whose facts are as those of a started one."""
    down: int
    """Nodes whose facts are as those of a stopped one."""
    missing: str
    """Those that are not up, folded."""


class SystemStatus(Out, frozen=True, kw_only=True):
    """How a system is, in the order in which it is started."""

    stages: tuple[StageState, ...]
    operation: str
    """The start or stop that is under way; empty: none is."""


class RevokeRequest(In, frozen=True, kw_only=True):
    """Revoke nodes' certificates. ``confirm`` must say ``revoke N nodes``."""

    select: SelectText
    reason: ReasonText
    confirm: Annotated[str, Meta(max_length=200)] = ""
