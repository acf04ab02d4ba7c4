"""Budgets: how much may happen at once."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.fleet.budgets.records import BudgetSpec, BudgetView
from strata.fleet.budgets.service import BudgetService

_TAG = "budgets"


@get("/v1/budgets", tags=[_TAG], **needs("read", "model"))
async def list_budgets(ask: Asked) -> ListOf[BudgetView]:
    """All budgets, with the numbers that are in force."""
    return ListOf(items=tuple(await ask.of(BudgetService).all(ask.who)))


@get("/v1/budgets/{name:str}", tags=[_TAG], **needs("read", "model", 404))
async def show_budget(ask: Asked, name: NamePath) -> BudgetView:
    """One of them."""
    return await ask.of(BudgetService).one(ask.who, name)


@put("/v1/budgets/{name:str}", tags=[_TAG], **needs("change", "model", 404, 409, body=True))
async def put_budget(ask: Asked, name: NamePath, data: JSONBody[BudgetSpec]) -> BudgetView:
    """Give a budget other numbers than the model declares. In force at once, on all controllers."""
    return await ask.of(BudgetService).put(ask.who, name, data)


@delete("/v1/budgets/{name:str}", tags=[_TAG], **needs("delete", "model", 404, 409))
async def reset_budget(ask: Asked, name: NamePath) -> None:
    """Go back to the numbers that the model declares."""
    await ask.of(BudgetService).delete(ask.who, name)


HANDLERS = [list_budgets, show_budget, put_budget, reset_budget]
