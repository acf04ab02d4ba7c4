"""What measures power, and what nodes, cabinets and the machine draw."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.power.telemetry.routes",),
    commands={
        "What is drawn": {
            "power show": "strata.power.telemetry.commands:show",
            "power top": "strata.power.telemetry.commands:top",
            "power history": "strata.power.telemetry.commands:history",
        }
    },
)
