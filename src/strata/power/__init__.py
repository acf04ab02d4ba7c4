"""Telemetry, energy accounting, capping and policies, and the CAPMC service."""

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"energy": ".commands:energy"}})
