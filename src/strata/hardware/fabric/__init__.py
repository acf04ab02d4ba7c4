"""How things are cabled."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"fabric": ".commands:fabric"}})
