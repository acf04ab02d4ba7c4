"""Measuring power: what nodes, cabinets and the machine draw."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "What is drawn": {
            "energy show": ".commands:show",
            "energy top": ".commands:top",
            "energy history": ".commands:history",
        }
    },
)
