"""How things are cabled."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"fabric": ".commands:fabric"}})
