"""Operations: work on many nodes, tracked and cancellable."""

from __future__ import annotations

import msgspec
from litestar import get

from strata.api.http import seal, unseal
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, OperationPath
from strata.fleet.operations.records import OperationPage
from strata.fleet.operations.service import OperationService

_TAG = "operations"


@get("/v1/operations", tags=[_TAG], **needs("read", "operation"))
async def list_operations(ask: Asked, limit: Limit = 100, cursor: Cursor = None) -> OperationPage:
    """Operations, newest first."""
    page = await ask.of(OperationService).operations(ask.who, limit, unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next))


_ROUTES = Routes(OperationService, "operation", tag=_TAG)

HANDLERS = [
    list_operations,
    _ROUTES.get(
        "show_operation", "/v1/operations/{operation:str}", OperationService.operation, 404, operation=OperationPath
    ),
    _ROUTES.post(
        "cancel_operation",
        "/v1/operations/{operation:str}/cancel",
        OperationService.cancel_operation,
        "change",
        404,
        409,
        operation=OperationPath,
    ),
]
