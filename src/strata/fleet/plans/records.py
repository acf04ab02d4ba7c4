"""Plans: the way of one node to its goal, and a dry run over many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import In, Out, SelectText, WantedMap, check_wanted
from strata.fleet.desires.records import DocumentSpec


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
