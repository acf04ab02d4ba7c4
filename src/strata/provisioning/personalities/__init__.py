"""What nodes run: personalities, as their owners write them and as agents get them."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"What is wanted": {"personality": ".commands:personality"}})
