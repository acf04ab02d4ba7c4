"""The site's workload managers: which are connected, what they say of nodes, and the driver that asks them."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"Jobs": {"workload": ".commands:workload"}})
