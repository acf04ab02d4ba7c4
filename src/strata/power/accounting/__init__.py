"""When and where jobs ran, and what energy they used."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.power.accounting.routes",),
    commands={
        "Jobs": {
            "energy job": "strata.power.accounting.commands:job",
            "energy jobs": "strata.power.accounting.commands:jobs",
            "energy record": "strata.power.accounting.commands:record",
            "energy import": "strata.power.accounting.commands:import_",
        }
    },
)
