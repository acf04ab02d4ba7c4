"""Numbers of budgets: as the site says them, and as they are in force."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.model import LIMITS, Budget, Model
from strata.core.texts import NAME, In, Out

BudgetName = Annotated[str, Meta(pattern=NAME, max_length=63)]
NUMBERS = ("limit", "percent", "rate")


class BudgetSpec(In, frozen=True, kw_only=True, omit_defaults=True):
    """The site's numbers for a budget that the model declares. What is left out stays as it is declared."""

    limit: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    """The most at once: nodes, or what ``weight`` adds up to."""
    percent: Annotated[float, Meta(gt=0, le=100)] | None = None
    """The most at once, as a percentage of the nodes that the budget applies to."""
    rate: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Starts a second."""


class BudgetEntry(BudgetSpec, frozen=True, kw_only=True, omit_defaults=True):
    """The same, with the budget's name: as the repository says it."""

    name: BudgetName


class BudgetNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The site's numbers, as they are kept."""

    spec: BudgetSpec
    author: str


class BudgetView(Out, frozen=True, kw_only=True):
    """A budget, with the numbers that are in force."""

    name: str
    per: str
    limit: float | None
    percent: float | None
    rate: float | None
    declared: BudgetSpec
    """The numbers that the model declares."""
    author: str
    """Who said other numbers; empty: nobody did."""
    doc: str


def declared(budget: Budget) -> BudgetSpec:
    """The numbers that the model declares."""
    return BudgetSpec.of(budget)


def with_numbers(model: Model, name: str, spec: BudgetSpec) -> Budget:
    """A budget of the model with other numbers; ``BadRequest`` where it cannot have them."""
    where, budget = f"budget {name}", model.budgets.get(name)
    own = [one.name for one in model.budgets.values() if one.per != LIMITS]
    if budget is None or budget.per == LIMITS:
        hint = f"these can: {', '.join(own)}; add others in a model file"
        raise BadRequest(f"no budget named {name[:80]} can be changed here", where="budget", hint=hint)
    said = {number: value for number in NUMBERS if (value := getattr(spec, number)) is not None}
    if not said:
        raise BadRequest("says no number", where=where, hint="give it limit, percent or rate")
    for number in said:
        if getattr(budget, number) is None:
            has = ", ".join(one for one in NUMBERS if getattr(budget, one) is not None)
            raise BadRequest(
                f"this budget has no {number}: the model declares it by {has}", where=where, hint=f"say its {has}"
            )
    made = msgspec.structs.replace(budget, **said)
    model.check_budget(made)
    return made
