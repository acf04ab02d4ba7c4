"""Whether nodes are fit for jobs: checks that their agents run, whether a failure counts, and what is done about it."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.platform.health"

ROOM = Room(
    services=(f"{_HERE}.service:HealthService",),
    routes=(f"{_HERE}.routes",),
    commands={"Their health": {"health": f"{_HERE}.commands:health"}},
)
