"""Who Strata is to BMCs (users and passwords, sealed), and whose certificates it accepts."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.credentials.routes",),
    commands={
        "Through the BMCs": {
            "hardware credentials": "strata.hardware.credentials.commands:credentials",
        },
    },
)
