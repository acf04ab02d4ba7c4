"""The users and passwords with which Strata logs in to BMCs (sealed), and the certificates that it accepts."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"Through the BMCs": {"hardware credentials": ".commands:credentials"}})
