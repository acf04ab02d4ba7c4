"""Commands run on many nodes by their agents."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={"Their agents": {"node exec": ".commands:exec_"}, "The fleet": {"cp": ".commands:cp"}},
)
