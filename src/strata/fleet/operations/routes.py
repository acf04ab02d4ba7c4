"""Operations: work on many nodes, tracked and cancellable."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.api.services import Cursor, Limit, OperationPath
from strata.fleet.operations.service import OperationService

_ROUTES = Routes(OperationService, "operation", tag="operations")
_ROUTES.get("list_operations", "/v1/operations", OperationService.operations, limit=Limit, cursor=Cursor)
_ROUTES.get(
    "show_operation", "/v1/operations/{operation:str}", OperationService.operation, 404, operation=OperationPath
)
_ROUTES.post(
    "cancel_operation",
    "/v1/operations/{operation:str}/cancel",
    OperationService.cancel_operation,
    "change",
    404,
    409,
    operation=OperationPath,
)
