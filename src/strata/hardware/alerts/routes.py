"""Alerts, and where they are sent."""

from __future__ import annotations

from typing import Annotated

from litestar import post
from litestar.params import JSONBody, PathParameter, QueryParameter

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit
from strata.core.texts import ListOf
from strata.hardware.alerts.records import AcknowledgeRequest, AlertView
from strata.hardware.alerts.service import AlertService

_TAG = "alerts"

AlertPath = Annotated[str, PathParameter(max_length=64, description="Its id, as lists show it.")]


@post("/v1/alerts/acknowledge", tags=[_TAG], status_code=200, **needs("change", "alert", 404, body=True))
async def acknowledge_alerts(ask: Asked, data: JSONBody[AcknowledgeRequest]) -> ListOf[AlertView]:
    """Say that a person looks after these alerts. One that gets worse, or comes back, is open again."""
    return ListOf(items=tuple(await ask.of(AlertService).acknowledge(ask.who, data.ids, data.note)))


_WEBHOOKS = Named("/v1/webhooks", AlertService, "webhook", tag="webhooks")

_ROUTES = Routes(AlertService, "alert", tag=_TAG)

HANDLERS = [
    _ROUTES.get(
        "list_alerts",
        "/v1/alerts",
        AlertService.alerts,
        everything=Annotated[bool, QueryParameter(name="all", description="Also those that are over.")],
        limit=Limit,
        cursor=Cursor,
    ),
    _ROUTES.get("get_alert", "/v1/alerts/{ident:str}", AlertService.alert, 404, ident=AlertPath),
    acknowledge_alerts,
    _WEBHOOKS.list(AlertService.webhooks),
    _WEBHOOKS.put(AlertService.put_webhook, statuses=()),
    _WEBHOOKS.delete(AlertService.delete_webhook, statuses=(404,)),
]
