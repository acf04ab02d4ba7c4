"""cloud-init: what a node's image learns of its node when it starts (the NoCloud data source)."""

from strata.core.room import Room

_HERE = "strata.platform.cloudinit"

ROOM = Room(
    services=(f"{_HERE}.service:CloudInitService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"cloud-init": f"{_HERE}.commands:cloud_init"}},
)
