"""Rollouts: a change to many nodes, in waves, within limits, with gates; stopped and taken back where it does harm."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:RolloutService",),
    routes=(".routes",),
    commands={"What is wanted": {"rollout": ".commands:rollout"}},
)
