"""The controller's side of the agents that run on nodes: who is attached, what they say, what they are told."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    raw_apps={"/agent/v1": ".door:agents_app"},
    commands={"Their agents": {"node agent": ".commands:agent"}},
)
