"""Ansible: the fleet as a dynamic inventory."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:AnsibleService",),
    routes=(".routes",),
    commands={"What is wanted": {"ansible": ".commands:ansible"}},
)
