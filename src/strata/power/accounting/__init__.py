"""When and where jobs ran, and what energy they used."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "Jobs": {
            "energy job": ".commands:job",
            "energy jobs": ".commands:jobs",
            "energy record": ".commands:record",
            "energy import": ".commands:import_",
        }
    },
)
