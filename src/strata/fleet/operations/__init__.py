"""Tracked work on many nodes, which goes on after the request that began it and after a restart."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.operations.service:OperationService",),
    routes=("strata.fleet.operations.routes",),
    commands={"What is wanted": {"operation": "strata.fleet.operations.commands:operation"}},
)
