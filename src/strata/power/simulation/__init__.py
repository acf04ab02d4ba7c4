"""A power policy tried on a simulated machine and a trace of jobs, before it runs."""

from strata.core.room import Room

ROOM = Room(commands={"Policies": {"power simulate": ".commands:simulate"}})
