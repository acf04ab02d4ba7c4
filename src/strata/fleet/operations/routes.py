"""Operations: work on many nodes, tracked and cancellable."""

from __future__ import annotations

import msgspec
from litestar import get, post

from strata.api.http import seal, unseal
from strata.api.rights import needs
from strata.api.services import Asked, Cursor, Limit, OperationPath
from strata.fleet.operations.records import Operation, OperationPage
from strata.fleet.operations.service import OperationService

_TAG = "operations"


@get("/v1/operations", tags=[_TAG], **needs("read", "operation"))
async def list_operations(ask: Asked, limit: Limit = 100, cursor: Cursor = None) -> OperationPage:
    """Operations, newest first."""
    page = await ask.of(OperationService).operations(ask.who, limit, unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next))


@get("/v1/operations/{operation:str}", tags=[_TAG], **needs("read", "operation", 404))
async def show_operation(ask: Asked, operation: OperationPath) -> Operation:
    """One operation with its progress."""
    return await ask.of(OperationService).operation(ask.who, operation)


@post("/v1/operations/{operation:str}/cancel", tags=[_TAG], status_code=200, **needs("change", "operation", 404, 409))
async def cancel_operation(ask: Asked, operation: OperationPath) -> Operation:
    """Stop an operation before its next chunk. What is done stays done."""
    return await ask.of(OperationService).cancel_operation(ask.who, operation)
