"""The whole machine at once, in columns: how it is, what changes, and how it was."""

from strata.core.room import Room

ROOM = Room(services=(".service:MachineService",), routes=(".routes",))
