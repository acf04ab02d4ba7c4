"""Secrets of nodes: encrypted wherever they are kept, opened only for the node that asks, and who has which version."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:SecretService",),
    routes=(".routes",),
    commands={"What is wanted": {"secret": ".commands:secret"}},
)
