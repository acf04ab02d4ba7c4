"""The red button: power goes away at once."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"emergency-off": ".commands:emergency_off"}})
