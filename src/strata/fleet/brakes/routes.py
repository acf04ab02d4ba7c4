"""Brakes: holds on nodes, freezes of the fleet, a group or a node; and another chance for nodes that failed."""

from __future__ import annotations

from typing import Annotated

from litestar import delete
from litestar.params import QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, FreezePath, Limit
from strata.core.texts import PLAIN
from strata.fleet.brakes.records import FreezeRequest, HoldRequest, RetryRequest
from strata.fleet.brakes.service import BrakeService
from strata.fleet.nodes.results import ManyResult

_TAG = "brakes"


@delete("/v1/holds", tags=[_TAG], status_code=200, **needs("delete", "hold", 404, 409))
async def release(
    ask: Asked,
    select: Annotated[str, QueryParameter(pattern=PLAIN, min_length=1, max_length=1_000_000)],
) -> ManyResult:
    """Give the selected nodes back to automation."""
    return await ask.of(BrakeService).release(ask.who, select)


_FREEZE = Routes(BrakeService, "freeze", tag=_TAG)
_HOLD = Routes(BrakeService, "hold", tag=_TAG)
_DESIRE = Routes(BrakeService, "desire", tag=_TAG)
_HOLD.get("list_holds", "/v1/holds", BrakeService.holds, limit=Limit, cursor=Cursor)
_HOLD.post("hold", "/v1/holds", BrakeService.hold, "create", 404, 409, data=HoldRequest)
_DESIRE.post("retry", "/v1/retries", BrakeService.retry, "change", 404, 409, data=RetryRequest)
_FREEZE.get("list_freezes", "/v1/freezes", BrakeService.freezes)
_FREEZE.post("freeze", "/v1/freezes", BrakeService.freeze, "create", 404, 409, success=201, data=FreezeRequest)
_FREEZE.delete("thaw", "/v1/freezes/{frozen:str}", BrakeService.thaw, 404, 409, frozen=FreezePath)
