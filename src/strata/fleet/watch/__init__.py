"""Changes of the fleet as they happen."""

from strata.core.room import Room

ROOM = Room(
    routes=("strata.fleet.watch.routes",),
    commands={"The fleet": {"watch": "strata.fleet.watch.commands:watch"}},
)
