"""cloud-init: what a node's image learns of its node when it starts (the NoCloud data source)."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:CloudInitService",),
    routes=(".routes",),
    commands={"What is wanted": {"cloud-init": ".commands:cloud_init"}},
)
