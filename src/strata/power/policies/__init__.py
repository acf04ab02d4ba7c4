"""Power policies: documents that say how caps and idle nodes are managed under the site limit. Pure."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"Policies": {"power policy": ".commands:policy"}})
