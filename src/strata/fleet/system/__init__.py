"""The service itself: health, status, model, store, log level, metrics."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:SystemService",),
    routes=(".routes",),
    commands={
        "The fleet": {"status": ".commands.status:status"},
        "The service": {
            "store": ".commands.store:store",
            "log-level": ".commands.status:log_level",
            "version": ".commands.status:version",
        },
    },
)
