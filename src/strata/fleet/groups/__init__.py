"""Named sets of nodes."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.groups.service:GroupService",),
    routes=("strata.fleet.groups.routes",),
    commands={"The fleet": {"group": "strata.fleet.groups.commands:group"}},
)
