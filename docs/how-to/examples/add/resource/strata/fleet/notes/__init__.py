"""What people want to remember of nodes."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.notes.service:Notes",),
    routes=("strata.fleet.notes.routes",),
    commands={"The fleet": {"note": "strata.fleet.notes.commands:note"}},
)
