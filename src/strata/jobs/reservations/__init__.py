"""Reservations: nodes that schedulers keep free for some accounts, for a time."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.reservations"

ROOM = Room(services=(f"{_HERE}.service:ReservationService",), routes=(f"{_HERE}.routes",))
