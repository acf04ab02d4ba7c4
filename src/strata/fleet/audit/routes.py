"""The audit log: who did what."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from strata.api.http import seal, unseal
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit
from strata.fleet.audit.service import AuditPage, AuditService


@get("/v1/audit", tags=["audit"], **needs("read", "audit", 410))
async def list_audit(
    ask: Asked,
    since: Annotated[int, QueryParameter(ge=0, le=2**53, description="First sequence number.")] = 0,
    limit: Limit = 1000,
    cursor: Cursor = None,
    newest: Annotated[bool, QueryParameter(description="The last ones, newest first, on one page.")] = False,
) -> AuditPage:
    """Audit records, oldest first; or the newest."""
    if newest:
        return AuditPage(items=tuple(await ask.of(AuditService).audit_latest(ask.who, limit)), next=None)
    page = await ask.of(AuditService).audit(ask.who, since, limit, unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next))


_ROUTES = Routes(AuditService, "audit", tag="audit")
_ROUTES.get("verify_audit", "/v1/audit/verify", AuditService.audit_verify)
