"""Commands run on many nodes by their agents."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={"Their agents": {"node exec": ".commands:exec_"}, "The fleet": {"cp": ".commands:cp"}},
)
