"""Projects: who may compute for one, how much it may use, and what it has used."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.projects"

ROOM = Room(
    services=(f"{_HERE}.service:ProjectService",),
    routes=(f"{_HERE}.routes",),
    commands={"Jobs": {"project": f"{_HERE}.commands:project"}},
)
