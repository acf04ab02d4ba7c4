"""Delivery: what a node is to be configured with, and what has drifted on nodes."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.api.services import Select
from strata.core.texts import NodeNameText
from strata.platform.delivery.service import DeliveryService

_ROUTES = Routes(DeliveryService, "config", tag="config")
_ROUTES.get("config_drift", "/v1/config/drift", DeliveryService.drift, 404, select=Select)
_ROUTES.get("rendered_config", "/v1/config/rendered/{name:str}", DeliveryService.rendered, 404, name=NodeNameText)
