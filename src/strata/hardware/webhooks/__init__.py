"""Where alerts are sent."""

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"webhook": ".commands:webhook"}})
