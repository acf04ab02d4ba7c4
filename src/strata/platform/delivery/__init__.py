"""Delivery of configuration to nodes: rendered per class from overlays, applied and kept by the nodes' agents."""

from strata.core.room import Room

_HERE = "strata.platform.delivery"

ROOM = Room(
    services=(f"{_HERE}.service:DeliveryService",),
    routes=(f"{_HERE}.routes",),
)
