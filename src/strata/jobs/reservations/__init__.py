"""Reservations: nodes that schedulers keep free for some accounts, for a time."""

from strata.core.room import Room

ROOM = Room(services=(".service:ReservationService",), routes=(".routes",))
