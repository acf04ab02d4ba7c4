"""Rollouts: a change to many nodes, in waves, within limits, with gates; stopped and taken back where it does harm."""

from strata.core.room import Room

_HERE = "strata.platform.rollouts"

ROOM = Room(
    services=(f"{_HERE}.service:RolloutService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"rollout": f"{_HERE}.commands:rollout"}},
)
