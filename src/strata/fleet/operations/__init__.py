"""Tracked work on many nodes, which goes on after the request that began it and after a restart."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:OperationService",),
    routes=(".routes",),
    commands={"What is wanted": {"operation": ".commands:operation"}},
)
