"""Boot service: what a machine fetches between its firmware and its minimal OS."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.provisioning.boot.routes",),
    commands={
        "The hardware": {
            "boot": "strata.provisioning.boot.commands.boot:boot",
        },
    },
)
