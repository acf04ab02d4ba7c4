"""Secrets of nodes: encrypted wherever they are kept, opened only for the node that asks, and who has which version."""

from strata.core.room import Room

_HERE = "strata.platform.secrets"

ROOM = Room(
    services=(f"{_HERE}.service:SecretService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"secret": f"{_HERE}.commands:secret"}},
)
