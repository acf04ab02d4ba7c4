"""Trouble that somebody should know of, one alert for each however often it is reported."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.alerts.routes",),
    commands={
        "The hardware": {
            "alert": "strata.hardware.alerts.commands:alert",
        },
    },
)
