"""Jobs of people: said once, run by whichever scheduler can, followed to their end."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(services=(".service:JobService",), routes=(".routes",), commands={"Jobs": {"job": ".commands:job"}})
