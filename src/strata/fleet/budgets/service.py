"""Requests about budgets; and the site's numbers, put into force on every controller as soon as they are known."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest, NotFound
from strata.core.model import LIMITS, Budget
from strata.fleet.access.principal import Principal
from strata.fleet.budgets.records import (
    BudgetEntry,
    BudgetNumbers,
    BudgetSpec,
    BudgetView,
    declared,
    with_numbers,
)
from strata.fleet.fleet import Fleet

KIND = "budget"


class BudgetService:
    """The budgets of this fleet. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.records = fleet.records(
            BudgetNumbers, kind=KIND, listed_by="strata budget list", changed=lambda name, _: self._in_force(name)
        )
        self.start = self.records.start
        self.stop = self.records.stop  # what is in force stays

    async def all(self, who: Principal) -> Sequence[BudgetView]:
        """All budgets, with the numbers that are in force."""
        return [self._view(budget) for _, budget in sorted(self._budgets.items())]

    async def one(self, who: Principal, name: str) -> BudgetView:
        """One of them."""
        if name not in self._budgets:
            raise NotFound(f"no such budget: {name}", where=KIND, hint="list them with: strata budget list")
        return self._view(self._budgets[name])

    async def put(self, who: Principal, name: str, spec: BudgetSpec) -> BudgetView:
        """Give a budget other numbers than the model declares. In force at once, on all controllers."""
        self._fleet.need_whole_fleet(who, "a budget")
        record = self.made(BudgetEntry.of(spec, name=name), who.name)
        await self.records.put(who.name, name, record, detail=msgspec.to_builtins(record.spec))
        return self._view(self._budgets[name])

    async def delete(self, who: Principal, name: str) -> None:
        """Go back to the numbers that the model declares."""
        self._fleet.need_whole_fleet(who, "a budget")
        await self.records.delete(who.name, name)

    # what the configuration says

    def said(self, name: str, record: BudgetNumbers) -> BudgetEntry:
        """What the repository would say of a record."""
        return BudgetEntry.of(record.spec, name=name)

    def made(self, spec: BudgetEntry, author: str) -> BudgetNumbers:
        """The record of what is said; ``BadRequest`` where this fleet cannot have it."""
        with_numbers(self._fleet.controller.model, spec.name, spec)
        return BudgetNumbers(spec=BudgetSpec.of(spec), author=author)

    def places(self, nodes: int) -> int | None:
        """How many of a fleet of so many nodes may be out of service at once; None: as many as there are."""
        found = []
        for budget in map(self._now, self._budgets):
            if budget.per == "fleet" and budget.destructive_only and not budget.weight:
                found += [budget.limit] if budget.limit is not None else []
                found += [nodes * budget.percent / 100] if budget.percent is not None else []
        return max(1, int(min(found))) if found else None

    # parts

    @property
    def _budgets(self) -> dict[str, Budget]:
        return {name: one for name, one in self._fleet.controller.model.budgets.items() if one.per != LIMITS}

    def _now(self, name: str) -> Budget:
        """A budget as it is in force. Numbers that it cannot have, as of another version of the model, do not count."""
        record = self.records.find(name)
        if record is None:
            return self._budgets[name]
        try:
            return with_numbers(self._fleet.controller.model, name, record.spec)
        except BadRequest:
            return self._budgets[name]

    def _in_force(self, name: str) -> None:
        if name in self._budgets:
            self._fleet.controller.set_budget(self._now(name))

    def _view(self, budget: Budget) -> BudgetView:
        record = self.records.find(budget.name)
        now = self._now(budget.name)
        author = record.author if record is not None else ""
        return BudgetView.of(now, declared=declared(budget), author=author)
