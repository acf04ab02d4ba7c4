"""Budgets: how much may happen at once."""

from __future__ import annotations

from strata.api.named import Named
from strata.fleet.budgets.service import BudgetService

_BUDGETS = Named("/v1/budgets", BudgetService, "budget", tag="budgets", kind="model")
_BUDGETS.list(BudgetService.all)
_BUDGETS.show(BudgetService.one)
_BUDGETS.put(BudgetService.put)
_BUDGETS.delete(BudgetService.delete, called="reset_budget")
