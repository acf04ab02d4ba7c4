"""What nodes run: personalities, as their owners write them and as agents get them."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.provisioning.personalities.routes",),
    commands={
        "What is wanted": {
            "personality": "strata.provisioning.personalities.commands:personality",
        },
    },
)
