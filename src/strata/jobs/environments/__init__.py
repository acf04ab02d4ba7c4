"""Work environments: named templates of an image, modules, binds and defaults, which users take and derive from."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.environments"

ROOM = Room(
    services=(f"{_HERE}.service:EnvironmentService",),
    routes=(f"{_HERE}.routes",),
    commands={"Jobs": {"environment": f"{_HERE}.commands:environment"}},
)
