"""Measuring power: what nodes, cabinets and the machine draw."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.power.telemetry.routes",),
    commands={
        "What is drawn": {
            "energy show": "strata.power.telemetry.commands:show",
            "energy top": "strata.power.telemetry.commands:top",
            "energy history": "strata.power.telemetry.commands:history",
        }
    },
)
