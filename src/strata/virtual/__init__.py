"""Hardware that isn't there: a simulated fleet of any size, in process or behind real sockets."""

from strata.core.room import Room

ROOM = Room(commands={"The service": {"virtual": ".commands:virtual"}})
