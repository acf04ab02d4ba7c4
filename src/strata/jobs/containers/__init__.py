"""Containers of jobs: images unpacked once, and the runtimes that start programs in them, all by one request."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.containers"

ROOM = Room(commands={"Jobs": {"container": f"{_HERE}.commands:container"}})
