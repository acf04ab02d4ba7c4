"""The site's workload managers: which are connected, what they say of nodes, and the driver that asks them."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.platform.workload.routes",),
    commands={"Jobs": {"workload": "strata.platform.workload.commands:workload"}},
)
