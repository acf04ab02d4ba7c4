"""Jobs of people: said once, run by whichever scheduler can, followed to their end."""

from strata.core.room import Room

ROOM = Room(services=(".service:JobService",), routes=(".routes",), commands={"Jobs": {"job": ".commands:job"}})
