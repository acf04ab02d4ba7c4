"""What people want to remember of nodes."""

from strata.core.room import Room

ROOM = Room(services=(".service:Notes",), routes=(".routes",), commands={"The fleet": {"note": ".commands:note"}})
