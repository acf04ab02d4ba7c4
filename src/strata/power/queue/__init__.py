"""The workload manager's queue, which power policies use."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"Policies": {"power queue": ".commands:queue"}})
