"""Trouble that somebody should know of, one alert for each however often it is reported."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"alert": ".commands:alert"}})
