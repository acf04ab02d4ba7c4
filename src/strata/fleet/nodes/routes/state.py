"""A node's way to its goal: why, plan, history, the past."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from strata.api.http import finite, seal, unseal
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, NodePath, Select, Time
from strata.core.errors import BadRequest
from strata.core.texts import PLAIN, ListOf
from strata.fleet.history.records import HistoryPage, ManyTransition, PastView
from strata.fleet.nodes.service import NodeService
from strata.fleet.plans.records import PlanView
from strata.fleet.plans.service import PlanService

_TAG = "nodes"

Wishes = Annotated[
    str | None,
    QueryParameter(
        name="set", pattern=PLAIN, max_length=4096, description="Desires to assume: `power=on,image=v2|v3`."
    ),
]


def parse_wishes(text: str | None) -> dict[str, tuple[str, ...]]:
    """``k=v,k=a|b`` as a mapping."""
    wishes: dict[str, tuple[str, ...]] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        name, sign, values = part.partition("=")
        if not sign or not name or not values or name in wishes:
            raise BadRequest("desires are written k=v,k=a|b, each variable once", where=f"set: {part!r}"[:80])
        wishes[name] = tuple(values.split("|"))
    return wishes


@get("/v1/history", tags=[_TAG], **needs("read", "node", 404, 410))
async def history_many(
    ask: Asked, select: Select, since: Time = None, until: Time = None, limit: Limit = 1000
) -> ListOf[ManyTransition]:
    """The changes of several nodes' facts, newest first: one that several had together is told once."""
    return await ask.of(NodeService).history_many(
        ask.who, select, finite(since, "since"), finite(until, "until"), limit
    )


@get("/v1/nodes/{name:str}/plan", tags=[_TAG], **needs("read", "node", 404))
async def plan(ask: Asked, name: NodePath, wishes: Wishes = None) -> PlanView:
    """The way to its goal, or to the one given."""
    return await ask.of(PlanService).plan_node(ask.who, name, parse_wishes(wishes))


@get("/v1/nodes/{name:str}/history", tags=[_TAG], **needs("read", "node", 404, 410))
async def history(
    ask: Asked,
    name: NodePath,
    since: Time = None,
    until: Time = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> HistoryPage:
    """The changes of its facts, newest first."""
    page = await ask.of(NodeService).history(
        ask.who, name, finite(since, "since"), finite(until, "until"), limit, unseal(cursor)
    )
    return msgspec.structs.replace(page, next=seal(page.next))


@get("/v1/nodes/{name:str}/at", tags=[_TAG], **needs("read", "node", 404, 410))
async def past(ask: Asked, name: NodePath, time: Annotated[float, QueryParameter(ge=0, le=1e11)]) -> PastView:
    """Its facts at a past time."""
    finite(time, "time")
    return await ask.of(NodeService).past(ask.who, name, time)


_ROUTES = Routes(NodeService, "node", tag=_TAG)

HANDLERS = [
    _ROUTES.get("why", "/v1/nodes/{name:str}/why", NodeService.why, 404, name=NodePath),
    _ROUTES.get("why_many", "/v1/why", NodeService.why_many, 404, select=Select),
    plan,
    history,
    history_many,
    past,
]
