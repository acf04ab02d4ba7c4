"""Where alerts are sent."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"webhook": ".commands:webhook"}})
