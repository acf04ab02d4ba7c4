"""What hardware there is and was, and conflicts in it."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "What there is": {
            "hardware discover": ".commands:discover",
            "hardware list": ".commands:list_",
            "hardware show": ".commands:show",
            "hardware components": ".commands:components",
            "hardware history": ".commands:history",
            "hardware conflicts": ".commands:conflicts",
            "hardware forget": ".commands:forget",
        }
    },
)
