"""Configuration from git: what the owners want, in files, layered; planned, applied, and followed on a branch."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:ConfigService",),
    routes=(".routes",),
    commands={"What is wanted": {"config": ".commands:config"}},
)
