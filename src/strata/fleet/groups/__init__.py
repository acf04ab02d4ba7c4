"""Named sets of nodes."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:GroupService",), routes=(".routes",), commands={"The fleet": {"group": ".commands:group"}}
)
