"""Alerts, and where they are sent."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from strata.api.named import Named
from strata.api.routing import Routes
from strata.api.services import Cursor, Limit
from strata.hardware.alerts.records import AcknowledgeRequest
from strata.hardware.alerts.service import AlertService

AlertPath = Annotated[
    str, PathParameter(max_length=64, description="Its id, or the beginning of it that no other has.")
]


_WEBHOOKS = Named("/v1/webhooks", AlertService, "webhook", tag="webhooks")
_ROUTES = Routes(AlertService, "alert", tag="alerts")
_ROUTES.get(
    "list_alerts",
    "/v1/alerts",
    AlertService.alerts,
    everything=Annotated[bool, QueryParameter(name="all", description="Also alerts that are over.")],
    limit=Limit,
    cursor=Cursor,
)
_ROUTES.get("get_alert", "/v1/alerts/{ident:str}", AlertService.alert, 404, ident=AlertPath)
_ROUTES.post(
    "acknowledge_alerts", "/v1/alerts/acknowledge", AlertService.acknowledge, "change", 404, data=AcknowledgeRequest
)
_WEBHOOKS.list(AlertService.webhooks)
_WEBHOOKS.put(AlertService.put_webhook, statuses=())
_WEBHOOKS.delete(AlertService.delete_webhook, statuses=(404,))
