"""What happens to hardware: heard, numbered, made into alerts, sent on."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.events.routes",),
    commands={
        "What there is": {
            "hardware events": "strata.hardware.events.commands:events",
        },
    },
)
