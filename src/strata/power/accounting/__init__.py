"""When and where jobs ran, and what energy they used."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.power.accounting.routes",),
    commands={
        "Jobs": {
            "power job": "strata.power.accounting.commands:job",
            "power jobs": "strata.power.accounting.commands:jobs",
            "power record": "strata.power.accounting.commands:record",
            "power import": "strata.power.accounting.commands:import_",
        }
    },
)
