"""Ansible: the fleet as a dynamic inventory."""

from strata.core.room import Room

_HERE = "strata.platform.ansible"

ROOM = Room(
    services=(f"{_HERE}.service:AnsibleService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"ansible": f"{_HERE}.commands:ansible"}},
)
