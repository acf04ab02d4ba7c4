"""The strata command. Holds no logic: it asks the API and shapes the answer."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    commands={
        "The fleet": {"top": "strata.cli.top:top"},
        "The service": {
            "up": "strata.cli.up.commands:up",
            "stop": "strata.cli.up.commands:stop",
            "down": "strata.cli.up.commands:down",
            "completion": "strata.cli.completion:completion",
        },
    },
)
