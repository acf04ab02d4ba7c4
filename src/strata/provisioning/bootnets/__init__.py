"""The networks that machines boot from, as the site declares them for all controllers; each serves those it is on."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"network": ".commands:network"}})
