"""What is wanted of nodes: set on nodes or by documents, and the result for every node."""

from strata.core.room import Room

_HERE = "strata.fleet.desires"

ROOM = Room(
    services=("strata.fleet.desires.service:DesireService",),
    routes=(f"{_HERE}.routes",),
    commands={
        "What is wanted": {"apply": f"{_HERE}.commands.apply:apply", "document": f"{_HERE}.commands.document:document"}
    },
)
