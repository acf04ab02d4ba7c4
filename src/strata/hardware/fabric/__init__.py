"""How things are cabled."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.fabric.routes",),
    commands={
        "The hardware": {
            "fabric": "strata.hardware.fabric.commands:fabric",
        },
    },
)
