"""Holds and freezes, by which people keep the automation away from nodes; and another try for nodes that failed."""

from strata.core.room import Room

_HERE = "strata.fleet.brakes"

ROOM = Room(
    services=("strata.fleet.brakes.service:BrakeService",),
    routes=(f"{_HERE}.routes",),
    commands={"Brakes": {"freeze": f"{_HERE}.commands:freeze", "thaw": f"{_HERE}.commands:thaw"}},
)
