"""``strata budget``: how much may happen at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session

if TYPE_CHECKING:
    from strata.cli.client import Json


def _number(name: str) -> ls.Field:
    def text(item: Json) -> str:
        value, was = item[name], item["declared"].get(name)
        if value is None:
            return "-"
        return f"{value:g}" if value == was else f"{value:g} (declared {was:g})"

    return ls.Field(name, text, lambda item: item[name] or 0, right=True)


FIELDS = (
    ls.plain("name"),
    ls.plain("per"),
    _number("limit"),
    _number("percent"),
    _number("rate"),
    ls.plain("author"),
    ls.plain("doc", shown=False),
)


@click.group()
def budget() -> None:
    """Say how much may happen at once: nodes out, nodes starting, BMC requests.

    The model declares budgets, and their numbers; a site gives them its own, here or in its repository.
    """


BUDGETS = Named(budget, "budget", "/v1/budgets", FIELDS)
BUDGETS.list("List the budgets, with the numbers that are in force.", "strata budget list")
BUDGETS.show("Show one budget.", "strata budget show disruption")


@budget.command("set")
@click.argument("name")
@click.option("--limit", type=float, default=None, metavar="N", help="The most at once.")
@click.option(
    "--percent",
    type=float,
    default=None,
    metavar="P",
    help="The most at once, as a percentage of the nodes in the fleet, group or location that the budget applies to.",
)
@click.option("--rate", type=float, default=None, metavar="R", help="The most starts a second.")
@ls.json_option
def set_(
    session: Session, name: str, limit: float | None, percent: float | None, rate: float | None, as_json: bool
) -> None:
    """Give a budget other numbers. In force at once; what has begun goes on.

    \b
    Example: strata budget set disruption --percent 5
    """
    said = {"limit": limit, "percent": percent, "rate": rate}
    body = {number: value for number, value in said.items() if value is not None}
    BUDGETS.report(session, session.client.put(BUDGETS.path(name), body), as_json)


@budget.command()
@click.argument("name")
@ls.json_option
def reset(session: Session, name: str, as_json: bool) -> None:
    """Go back to the numbers that the model declares.

    \b
    Example: strata budget reset disruption
    """
    session.client.delete(BUDGETS.path(name))
    session.out.answer(as_json, {"reset": name}, f"budget {name} has the numbers that the model declares")
