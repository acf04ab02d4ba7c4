"""Projects: who may compute for one, how much it may use, and what it has used."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:ProjectService",), routes=(".routes",), commands={"Jobs": {"project": ".commands:project"}}
)
