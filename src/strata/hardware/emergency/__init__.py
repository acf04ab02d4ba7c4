"""The red button: power goes away at once."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.emergency.routes",),
    commands={
        "The hardware": {
            "emergency-off": "strata.hardware.emergency.commands:emergency_off",
        },
    },
)
