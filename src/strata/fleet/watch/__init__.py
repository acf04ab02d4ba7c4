"""Changes of the fleet as they happen."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:WatchService",), routes=(".routes",), commands={"The fleet": {"watch": ".commands:watch"}}
)
