"""Dry runs: which mutations would be done to nodes, without doing any."""

from strata.core.room import Room

ROOM = Room(services=(".service:PlanService",), commands={"What is wanted": {"plan": ".commands:plan"}})
