"""What is wanted of nodes: set on nodes or by documents, and the result for every node."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:DesireService",),
    routes=(".routes",),
    commands={"What is wanted": {"apply": ".commands.apply:apply", "document": ".commands.document:document"}},
)
