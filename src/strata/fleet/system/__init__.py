"""The service itself: health, status, model, store, log level, metrics."""

from strata.core.room import Room

_HERE = "strata.fleet.system"

ROOM = Room(
    services=("strata.fleet.system.service:SystemService",),
    routes=(f"{_HERE}.routes",),
    commands={
        "The fleet": {"status": f"{_HERE}.commands.status:status"},
        "The service": {
            "store": f"{_HERE}.commands.store:store",
            "log-level": f"{_HERE}.commands.status:log_level",
            "version": f"{_HERE}.commands.status:version",
        },
    },
)
