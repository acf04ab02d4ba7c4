"""ALPS BASIL's inventory: the nodes of a machine as the batch systems of Cray's machines ask for them. Read-only."""

from strata.core.room import Room

ROOM = Room(services=(".service:BasilService",), routes=(".routes",))
