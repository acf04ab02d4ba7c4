"""Brakes: holds on nodes, freezes of the fleet, a group or a node; and another chance for nodes that failed."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, post
from litestar.params import JSONBody, QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, FreezePath, Limit
from strata.core.node import Freeze
from strata.core.texts import PLAIN
from strata.fleet.brakes.records import FreezeRequest, HoldRequest, RetryRequest
from strata.fleet.brakes.service import BrakeService
from strata.fleet.nodes.results import ManyResult

_TAG = "brakes"


@post("/v1/holds", tags=[_TAG], status_code=200, **needs("create", "hold", 404, 409, body=True))
async def hold(ask: Asked, data: JSONBody[HoldRequest]) -> ManyResult:
    """Take the selected nodes out of automation."""
    return await ask.of(BrakeService).hold(ask.who, data.select, data.reason)


@delete("/v1/holds", tags=[_TAG], status_code=200, **needs("delete", "hold", 404, 409))
async def release(
    ask: Asked,
    select: Annotated[str, QueryParameter(pattern=PLAIN, min_length=1, max_length=1_000_000)],
) -> ManyResult:
    """Give the selected nodes back to automation."""
    return await ask.of(BrakeService).release(ask.who, select)


@post("/v1/retries", tags=[_TAG], status_code=200, **needs("change", "desire", 404, 409, body=True))
async def retry(ask: Asked, data: JSONBody[RetryRequest]) -> ManyResult:
    """Forget the failures and faults of the selected nodes and try them again now, as a new desire would."""
    return await ask.of(BrakeService).retry(ask.who, data.select)


@post("/v1/freezes", tags=[_TAG], **needs("create", "freeze", 404, 409, body=True))
async def freeze(ask: Asked, data: JSONBody[FreezeRequest]) -> Freeze:
    """Start nothing more for the scope until it is thawed."""
    return await ask.of(BrakeService).freeze(ask.who, data.scope, data.reason)


_ROUTES = Routes(BrakeService, "freeze", tag=_TAG)

_HOLD = Routes(BrakeService, "hold", tag=_TAG)

HANDLERS = [
    _HOLD.get("list_holds", "/v1/holds", BrakeService.holds, limit=Limit, cursor=Cursor),
    hold,
    release,
    retry,
    _ROUTES.get("list_freezes", "/v1/freezes", BrakeService.freezes),
    freeze,
    _ROUTES.delete("thaw", "/v1/freezes/{frozen:str}", BrakeService.thaw, 404, 409, frozen=FreezePath),
]
