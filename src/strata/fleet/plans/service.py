"""Dry runs: what would be done, for one node and for many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import among
from strata.core.nodeset import fold
from strata.engine.planner import Plan, Planner, classify
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.desires.documents import DesireDocument, ValueSet
from strata.fleet.fleet import Fleet
from strata.fleet.plans.records import PlanClass, PlanReport, PlanRequest, PlanView, StepView


class PlanService:
    """Plans that change nothing."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def plan_node(self, who: Principal, name: str, desires: Mapping[str, Sequence[str]]) -> PlanView:
        """The way for one node, with ``desires`` set on top of its own."""
        index = self._fleet.index(who, name)
        wanted = self._fleet.edits.checked_wish(desires)
        nodes = np.array([index])
        (_, plan), *_ = self._plans(nodes, self._fleet.registry.desires.preview(nodes, wanted))
        return PlanView(node=name, observe=plan.observe, **self._about(plan))

    async def plan_many(self, who: Principal, request: PlanRequest) -> PlanReport:
        """What would happen to the selected nodes: a dry run, by class. Changes nothing."""
        nodes = self._fleet.seen(who, request.select)
        wanted = self._fleet.edits.checked_wish(request.set)
        documents = [
            self._fleet.edits.checked_document(DesireDocument(**msgspec.structs.asdict(document)), who.name)
            for document in request.documents
        ]
        return self.report(nodes, self._fleet.registry.desires.preview(nodes, wanted, documents))

    def report(self, nodes: Indices, goals: Mapping[str, Sequence[ValueSet]]) -> PlanReport:
        """The way for every one of ``nodes`` if ``goals`` (variable → aligned with them) were wanted, by class."""
        classes: list[PlanClass] = []
        totals: dict[str, int] = {}
        for members, plan in self._plans(nodes, goals):
            for step in plan.steps:
                totals[step] = totals.get(step, 0) + len(members)
            nodeset = fold(self._fleet.view.names(members))
            classes.append(PlanClass(count=len(members), nodeset=nodeset, **self._about(plan)))
        classes.sort(key=lambda c: (-c.count, c.nodeset))
        return PlanReport(nodes=len(nodes), classes=tuple(classes), totals=totals)

    def _plans(self, nodes: Indices, goals: Mapping[str, Sequence[ValueSet]]) -> list[tuple[Indices, Plan]]:
        """One plan per distinct (facts, desires); nodes with the same plan come together."""
        model, planner = self._fleet.controller.model, Planner(self._fleet.controller.model)
        columns = self._fleet.controller.engine.table.columns
        key = np.zeros(len(nodes), dtype=np.int64)
        for variable in model.variables:
            column = columns[variable]
            how = column.implied[nodes] + 2 * column.unseen[nodes].astype(np.int64)
            for codes in (column.fact[nodes], how, _coded(goals[variable])):
                # Folded at every turn, so that the key never outgrows its integer.
                _, key = np.unique(key * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        by_plan: dict[Plan, list[int]] = {}
        for number, place in enumerate(first.tolist()):
            facts = {name: columns[name].words[columns[name].fact[nodes[place]]] for name in model.variables}
            desires = {name: sets[place] for name, sets in goals.items() if sets[place]}
            blind = frozenset(name for name in model.variables if columns[name].unseen[nodes[place]])
            implied = frozenset(name for name in model.variables if columns[name].implied[nodes[place]])
            plan = planner.advance(*classify(model, facts, desires), blind, implied)
            by_plan.setdefault(plan, []).append(number)
        return [(nodes[among(inverse, numbers)], plan) for plan, numbers in by_plan.items()]

    def _about(self, plan: Plan) -> dict[str, Any]:
        """What is shown of a plan, whomever it is for."""
        mutations = [self._fleet.controller.model.mutations[name] for name in plan.steps]
        steps = tuple(StepView.of(mutation, mutation=mutation.name) for mutation in mutations)
        return {"status": plan.status, "steps": steps, "cost": plan.cost, "reason": plan.reason}


def _coded(sets: Sequence[ValueSet]) -> npt.NDArray[np.int64]:
    known: dict[ValueSet, int] = {}
    return np.fromiter((known.setdefault(values, len(known)) for values in sets), dtype=np.int64, count=len(sets))
