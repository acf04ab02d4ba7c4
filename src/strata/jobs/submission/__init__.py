"""Jobs of people: said once, run by whichever scheduler can, followed to their end."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.submission"

ROOM = Room(
    services=(f"{_HERE}.service:JobService",),
    routes=(f"{_HERE}.routes",),
    commands={"Jobs": {"job": f"{_HERE}.commands:job"}},
)
