"""Budgets: how much may happen at once."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import NAME, Out
from strata.fleet.budgets.records import BudgetSpec, BudgetView
from strata.fleet.budgets.service import BudgetService

_TAG = "budgets"

BudgetPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]


class BudgetList(Out, frozen=True, kw_only=True):
    """All budgets, by name."""

    items: tuple[BudgetView, ...]


@get("/v1/budgets", tags=[_TAG], **needs("read", "model"))
async def list_budgets(ask: Asked) -> BudgetList:
    """All budgets, with the numbers that are in force."""
    return BudgetList(items=tuple(await ask.of(BudgetService).all(ask.who)))


@get("/v1/budgets/{name:str}", tags=[_TAG], **needs("read", "model", 404))
async def show_budget(ask: Asked, name: BudgetPath) -> BudgetView:
    """One of them."""
    return await ask.of(BudgetService).one(ask.who, name)


@put("/v1/budgets/{name:str}", tags=[_TAG], **needs("change", "model", 404, 409, body=True))
async def put_budget(ask: Asked, name: BudgetPath, data: JSONBody[BudgetSpec]) -> BudgetView:
    """Give a budget other numbers than the model declares. In force at once, on all controllers."""
    return await ask.of(BudgetService).put(ask.who, name, data)


@delete("/v1/budgets/{name:str}", tags=[_TAG], **needs("delete", "model", 404, 409))
async def reset_budget(ask: Asked, name: BudgetPath) -> None:
    """Go back to the numbers that the model declares."""
    await ask.of(BudgetService).delete(ask.who, name)


HANDLERS = [list_budgets, show_budget, put_budget, reset_budget]
