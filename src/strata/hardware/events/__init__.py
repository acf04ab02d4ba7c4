"""What happens to hardware: heard, numbered, made into alerts, sent on."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"What there is": {"hardware events": ".commands:events"}})
