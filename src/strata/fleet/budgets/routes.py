"""Budgets: how much may happen at once."""

from __future__ import annotations

from strata.api.named import Named
from strata.fleet.budgets.service import BudgetService

_BUDGETS = Named("/v1/budgets", BudgetService, "budget", tag="budgets", kind="model")
_BUDGETS.list(BudgetService.all, "All budgets, with the numbers that are in force.")
_BUDGETS.show(BudgetService.one, "One of them.")
_BUDGETS.put(
    BudgetService.put, "Give a budget other numbers than the model declares. In force at once, on all controllers."
)
_BUDGETS.delete(BudgetService.delete, "Go back to the numbers that the model declares.", called="reset_budget")
