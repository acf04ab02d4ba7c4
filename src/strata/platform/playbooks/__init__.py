"""Playbook layers: playbooks of a git repository, pinned to commits, run on the nodes that have not had them yet."""

from strata.core.room import Room

_HERE = "strata.platform.playbooks"

ROOM = Room(
    services=(f"{_HERE}.service:PlaybookService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"playbook": f"{_HERE}.commands:playbook"}},
)
