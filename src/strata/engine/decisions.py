"""From a class of nodes to what is to be done next: one search per class, a look-up per node."""

from __future__ import annotations

import enum

import msgspec

from strata.core.model import Model
from strata.engine.planner import Plan, Planner
from strata.engine.table import FleetTable


class Kind(enum.IntEnum):
    """The whole set of things that can be next."""

    UNMANAGED = 0
    """Nothing is desired."""
    READY = 1
    """Everything desired holds."""
    ACT = 2
    """Start a mutation."""
    LOOK = 3
    """See first."""
    STUCK = 4
    """There is no way, not even to a part of the goal; the plan says why."""


class Decision(msgspec.Struct, frozen=True):
    """What comes next for every node of a class."""

    kind: Kind
    plan: Plan
    mutation: str = ""
    observers: tuple[str, ...] = ()
    """The drivers that must look."""


class Decider:
    """Remembers the decision of every class that it has met."""

    def __init__(self, model: Model, table: FleetTable) -> None:
        self._model = model
        self._table = table
        self._planner = Planner(model)
        self._ids: dict[tuple[int, ...], int] = {}
        self.decisions: list[Decision] = []

    def of_class(self, row: tuple[int, ...]) -> int:
        """The number of the decision for a class as ``FleetTable.classes`` gives it."""
        number = self._ids.get(row)
        if number is None:
            number = self._ids[row] = len(self.decisions)
            self.decisions.append(self._decide(row))
        return number

    def _decide(self, row: tuple[int, ...]) -> Decision:
        facts: list[str] = []
        desires: list[frozenset[str] | None] = []
        unseen: set[str] = set()
        implied: set[str] = set()
        for position, (name, column) in enumerate(self._table.columns.items()):
            fact = column.fact_class(row[2 * position])
            facts.append(fact.symbol)
            if fact.unseen:
                unseen.add(name)
            if fact.implied:
                implied.add(name)
            desires.append(column.goal_symbols(row[2 * position + 1]))
        plan = self._planner.advance(tuple(facts), tuple(desires), frozenset(unseen), frozenset(implied))
        if all(desire is None for desire in desires):
            return Decision(Kind.UNMANAGED, plan)
        if plan.status == "done":
            return Decision(Kind.READY, plan)
        if plan.status == "plan":
            return Decision(Kind.ACT, plan, mutation=plan.steps[0])
        if plan.status == "observe":
            observers = dict.fromkeys(self._model.variables[name].observer for name in plan.observe)
            return Decision(Kind.LOOK, plan, observers=tuple(observers))
        return Decision(Kind.STUCK, plan)
