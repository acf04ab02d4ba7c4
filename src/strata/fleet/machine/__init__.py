"""The whole machine at once, in columns: how it is, what changes, and how it was."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.machine.service:MachineService",),
    routes=("strata.fleet.machine.routes",),
)
