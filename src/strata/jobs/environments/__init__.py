"""Work environments: named templates of an image, modules, binds and defaults, which users take and derive from."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:EnvironmentService",),
    routes=(".routes",),
    commands={"Jobs": {"environment": ".commands:environment"}},
)
