"""Containers of jobs: images unpacked once, and the runtimes that start programs in them, all by one request."""

from strata.core.room import Room

ROOM = Room(commands={"Jobs": {"container": ".commands:container"}})
