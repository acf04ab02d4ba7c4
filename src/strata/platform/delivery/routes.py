"""Delivery: what a node is to be configured with, and what has drifted on nodes."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.core.texts import NodeNameText
from strata.platform.delivery.records import DriftList, RenderedOverlay
from strata.platform.delivery.service import DeliveryService

_TAG = "config"


@get("/v1/config/drift", tags=[_TAG], **needs("read", "config", 404))
async def config_drift(ask: Asked, select: Select = "*") -> DriftList:
    """What is not as it was delivered, on the selected nodes."""
    return await ask.of(DeliveryService).drift(ask.who, select)


@get("/v1/config/rendered/{name:str}", tags=[_TAG], **needs("read", "config", 404))
async def rendered_config(ask: Asked, name: NodeNameText) -> RenderedOverlay:
    """What a node is to be configured with, as its agent gets it."""
    return await ask.of(DeliveryService).rendered(ask.who, name)
