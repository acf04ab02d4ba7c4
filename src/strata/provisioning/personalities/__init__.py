"""What nodes run: personalities, as their owners write them and as agents get them."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"What is wanted": {"personality": ".commands:personality"}})
