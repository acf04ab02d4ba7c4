"""The strata command. Holds no logic: it asks the API and shapes the answer."""

from strata.core.room import Room

ROOM = Room(
    commands={
        "The fleet": {"top": ".top:top"},
        "The service": {
            "up": ".up.commands:up",
            "stop": ".up.commands:stop",
            "down": ".up.commands:down",
            "completion": ".completion:completion",
        },
    }
)
