"""Configuration from git: what the owners want, in files, layered; planned, applied, and followed on a branch."""

from strata.core.room import Room

_HERE = "strata.platform.config"

ROOM = Room(
    services=(f"{_HERE}.service:ConfigService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"config": f"{_HERE}.commands:config"}},
)
