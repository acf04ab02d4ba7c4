"""Alerts, and where they are sent."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from strata.api.http import seal, unseal
from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, Cursor, Limit
from strata.core.texts import ListOf
from strata.hardware.alerts.records import AcknowledgeRequest, AlertPage, AlertView
from strata.hardware.alerts.service import AlertService

_TAG = "alerts"

AlertPath = Annotated[str, PathParameter(max_length=64, description="Its id, as lists show it.")]


@get("/v1/alerts", tags=[_TAG], **needs("read", "alert"))
async def list_alerts(
    ask: Asked,
    everything: Annotated[bool, QueryParameter(name="all", description="Also alerts that are over.")] = False,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> AlertPage:
    """Alerts, worst first, then newest first; those that are over come last."""
    page = await ask.of(AlertService).alerts(ask.who, all_=everything, limit=limit, after=unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next or None) or "")


@get("/v1/alerts/{ident:str}", tags=[_TAG], **needs("read", "alert", 404))
async def get_alert(ask: Asked, ident: AlertPath) -> AlertView:
    """One alert, open or over."""
    return await ask.of(AlertService).alert(ask.who, ident)


@post("/v1/alerts/acknowledge", tags=[_TAG], status_code=200, **needs("change", "alert", 404, body=True))
async def acknowledge_alerts(ask: Asked, data: JSONBody[AcknowledgeRequest]) -> ListOf[AlertView]:
    """Say that a person looks after these alerts. One that gets worse, or comes back, is open again."""
    return ListOf(items=tuple(await ask.of(AlertService).acknowledge(ask.who, data.ids, data.note)))


_WEBHOOKS = Named("/v1/webhooks", AlertService, "webhook", tag="webhooks")
_WEBHOOKS.list(AlertService.webhooks, "Where alerts are sent, without secrets.")
_WEBHOOKS.put(
    AlertService.put_webhook,
    "Create or replace a webhook. Without a secret, the one that it has stays; delete it first to send unsigned.",
    statuses=(),
)
_WEBHOOKS.delete(AlertService.delete_webhook, "Remove a webhook; what waits for it is dropped.", statuses=(404,))
