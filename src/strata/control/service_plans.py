"""Dry runs: what would be done, for one node and for many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strata.control.columns import Indices
from strata.control.documents import DesireDocument, ValueSet, checked, value_sets
from strata.control.fleet_views.plans import PlanClass, PlanReport, PlanRequest, PlanView, StepView
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core.nodeset import fold
from strata.engine.planner import Plan, Planner, classify


class PlanService(ServiceBase):
    """Plans that change nothing."""

    async def plan_node(self, who: Principal, name: str, desires: Mapping[str, Sequence[str]]) -> PlanView:
        """The way for one node, with ``desires`` set on top of its own."""
        index = self.index(who, name)
        wanted = value_sets(self.controller.model, desires)
        (_, plan), *_ = self._plans(np.array([index]), wanted, ())
        return PlanView(
            node=name,
            status=plan.status,
            steps=self._steps(plan),
            observe=plan.observe,
            cost=plan.cost,
            reason=plan.reason,
        )

    async def plan_many(self, who: Principal, request: PlanRequest) -> PlanReport:
        """The way for every selected node, by class."""
        nodes = self.seen(who, request.select)
        model = self.controller.model
        wanted = value_sets(model, request.set)
        documents = [
            checked(
                model,
                DesireDocument(
                    name=d.name, select=d.select, set=value_sets(model, d.set), priority=d.priority, author=who.name
                ),
                who.name,
            )
            for d in request.documents
        ]
        classes: list[PlanClass] = []
        totals: dict[str, int] = {}
        for members, plan in self._plans(nodes, wanted, documents):
            for step in plan.steps:
                totals[step] = totals.get(step, 0) + len(members)
            classes.append(
                PlanClass(
                    count=len(members),
                    nodeset=fold(self.view.names(members)),
                    status=plan.status,
                    steps=self._steps(plan),
                    cost=plan.cost,
                    reason=plan.reason,
                )
            )
        classes.sort(key=lambda c: (-c.count, c.nodeset))
        return PlanReport(nodes=len(nodes), classes=tuple(classes), totals=totals)

    def _plans(
        self, nodes: Indices, wanted: Mapping[str, ValueSet], documents: Sequence[DesireDocument]
    ) -> list[tuple[Indices, Plan]]:
        """One plan per distinct (facts, desires); nodes with the same plan come together."""
        model, planner = self.controller.model, Planner(self.controller.model)
        goals = self.registry.desires.preview(nodes, wanted, documents)
        columns = self.controller.engine.table.columns
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
        return [(nodes[np.isin(inverse, numbers)], plan) for plan, numbers in by_plan.items()]

    def _steps(self, plan: Plan) -> tuple[StepView, ...]:
        mutations = [self.controller.model.mutations[name] for name in plan.steps]
        return tuple(
            StepView(
                mutation=m.name,
                variable=m.variable,
                to=m.to,
                cost=m.cost,
                destructive=m.destructive,
                guards=m.guards,
            )
            for m in mutations
        )


def _coded(sets: Sequence[ValueSet]) -> npt.NDArray[np.int64]:
    known: dict[ValueSet, int] = {}
    return np.fromiter((known.setdefault(values, len(known)) for values in sets), dtype=np.int64, count=len(sets))
