"""The workload manager's queue, which power policies use."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.power.queue.routes",), commands={"Policies": {"power queue": "strata.power.queue.commands:queue"}}
)
