"""Why a node is not at its goal."""

from __future__ import annotations

from strata.control.fleet_views.nodes import State
from strata.control.texts import Out


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
