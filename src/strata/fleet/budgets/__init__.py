"""Budgets: how much may happen at once; the site's own numbers replace those of the model."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:BudgetService",), routes=(".routes",), commands={"Brakes": {"budget": ".commands:budget"}}
)
