"""What nodes run: image sets, as their owners write them and as agents get them."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.provisioning.personality.routes",),
    commands={
        "What is wanted": {
            "image-set": "strata.provisioning.personality.commands:image_set",
        },
    },
)
