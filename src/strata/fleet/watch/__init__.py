"""Changes of the fleet as they happen."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.watch.service:WatchService",),
    routes=("strata.fleet.watch.routes",),
    commands={"The fleet": {"watch": "strata.fleet.watch.commands:watch"}},
)
