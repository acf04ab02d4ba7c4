"""Budgets: how much may happen at once; the site's own numbers replace those of the model."""

from strata.core.room import Room

_HERE = "strata.fleet.budgets"

ROOM = Room(
    services=(f"{_HERE}.service:BudgetService",),
    routes=(f"{_HERE}.routes",),
    commands={"Brakes": {"budget": f"{_HERE}.commands:budget"}},
)
