"""ALPS BASIL's inventory: the nodes of a machine as the batch systems of Cray's machines ask for them. Read-only."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.platform.basil"

ROOM = Room(services=(f"{_HERE}.service:BasilService",), routes=(f"{_HERE}.routes",))
