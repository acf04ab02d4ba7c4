"""Holds and freezes, by which people keep the automation away from nodes; and another try for nodes that failed."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:BrakeService",),
    routes=(".routes",),
    commands={"Brakes": {"freeze": ".commands:freeze", "thaw": ".commands:thaw"}},
)
