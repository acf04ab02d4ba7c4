"""Playbook layers: playbooks of a git repository, pinned to commits, run on the nodes that have not had them yet."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:PlaybookService",),
    routes=(".routes",),
    commands={"What is wanted": {"playbook": ".commands:playbook"}},
)
