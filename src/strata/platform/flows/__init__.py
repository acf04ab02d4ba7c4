"""Flows: named sequences of steps over nodes; and the start and stop of a whole system, which are made of them."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.platform.flows"

ROOM = Room(
    services=(f"{_HERE}.service:FlowService", f"{_HERE}.system:SystemFlows"),
    routes=(f"{_HERE}.routes",),
    commands={
        "What is wanted": {"flow": f"{_HERE}.commands.flow:flow"},
        "The fleet": {"system": f"{_HERE}.commands.system:system"},
        "The hardware": {"emergency-revoke": f"{_HERE}.commands.emergency:emergency_revoke"},
    },
)
