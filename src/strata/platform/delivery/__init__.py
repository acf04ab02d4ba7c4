"""Delivery of configuration to nodes: rendered per class from overlays, applied and kept by the nodes' agents."""

from strata.core.room import Room

ROOM = Room(services=(".service:DeliveryService",), routes=(".routes",))
