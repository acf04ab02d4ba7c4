"""What hardware there is and was, and conflicts in it."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.inventory.routes",),
    commands={
        "What there is": {
            "hardware discover": "strata.hardware.inventory.commands:discover",
            "hardware list": "strata.hardware.inventory.commands:list_",
            "hardware show": "strata.hardware.inventory.commands:show",
            "hardware components": "strata.hardware.inventory.commands:components",
            "hardware history": "strata.hardware.inventory.commands:history",
            "hardware conflicts": "strata.hardware.inventory.commands:conflicts",
            "hardware forget": "strata.hardware.inventory.commands:forget",
        },
    },
)
