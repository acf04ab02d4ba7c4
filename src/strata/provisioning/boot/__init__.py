"""Boot service: what a machine fetches between its firmware and its minimal OS."""

from strata.core.room import Room

ROOM = Room(routes=(".routes",), commands={"The hardware": {"boot": ".commands.boot:boot"}})
