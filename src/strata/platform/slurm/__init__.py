"""Slurm's configuration, made from the inventory and from what the site says, and the programs that Slurm runs."""

from strata.core.room import Room

ROOM = Room(services=(".service:SlurmService",), routes=(".routes",), commands={"Jobs": {"slurm": ".commands:slurm"}})
