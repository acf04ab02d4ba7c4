"""Slurm's configuration, made from the inventory and from what the site says, and the programs that Slurm runs."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.platform.slurm"

ROOM = Room(
    services=(f"{_HERE}.service:SlurmService",),
    routes=(f"{_HERE}.routes",),
    commands={"Jobs": {"slurm": f"{_HERE}.commands:slurm"}},
)
