"""A node's way to its goal: why, plan, history, the past."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, NodePath, Select, Time
from strata.core.errors import BadRequest
from strata.core.texts import PLAIN
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


@get("/v1/nodes/{name:str}/plan", tags=[_TAG], **needs("read", "node", 404))
async def plan(ask: Asked, name: NodePath, wishes: Wishes = None) -> PlanView:
    """The way to its goal, or to the one given."""
    return await ask.of(PlanService).plan_node(ask.who, name, parse_wishes(wishes))


_ROUTES = Routes(NodeService, "node", tag=_TAG)
_ROUTES.get("why", "/v1/nodes/{name:str}/why", NodeService.why, 404, name=NodePath)
_ROUTES.get("why_many", "/v1/why", NodeService.why_many, 404, select=Select)
_ROUTES.get(
    "history",
    "/v1/nodes/{name:str}/history",
    NodeService.history,
    404,
    410,
    name=NodePath,
    since=Time,
    until=Time,
    limit=Limit,
    cursor=Cursor,
)
_ROUTES.get(
    "history_many",
    "/v1/history",
    NodeService.history_many,
    404,
    410,
    select=Select,
    since=Time,
    until=Time,
    limit=Limit,
)
_ROUTES.get(
    "past",
    "/v1/nodes/{name:str}/at",
    NodeService.past,
    404,
    410,
    name=NodePath,
    time=Annotated[float, QueryParameter(ge=0, le=1e11)],
)
