"""What nodes print: captured, kept, searched, watched for trouble."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.consoles.routes",),
    commands={
        "The hardware": {
            "console": "strata.hardware.consoles.commands.console:console",
        },
        "Through the BMCs": {
            "hardware console": "strata.hardware.consoles.commands.console:console",
        },
    },
)
