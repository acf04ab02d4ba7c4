"""HaaS: BMCs of machines, reached over Redfish."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"hardware": ".commands:hardware"}})
