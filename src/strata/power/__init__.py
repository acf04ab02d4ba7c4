"""Telemetry, energy accounting, capping and policies, and the CAPMC service."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(commands={"The hardware": {"energy": ".commands:energy"}})
