"""HaaS: BMCs of machines, reached over Redfish."""

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"hardware": ".commands:hardware"}})
