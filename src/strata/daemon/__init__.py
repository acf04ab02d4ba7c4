"""Settings → fleet → the chosen layers opened on it → faces."""

from pathlib import Path

from strata.core.room import Room

CONFIG_FILE = Path("/etc/strata/strata.yaml")
"""Read where it exists, unless another is named."""

ROOM = Room(
    commands={
        "What is wanted": {"model": ".model_commands:group"},
        "The service": {"serve": ".serve_commands:serve", "doctor": ".doctor_commands:doctor"},
    }
)
