"""Accelerators and fast networks: what a machine has, what a job gets of it, and how containers are told."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.accelerators"

ROOM = Room(
    services=(f"{_HERE}.service:AcceleratorService",),
    routes=(f"{_HERE}.routes",),
    commands={"Jobs": {"accelerator": f"{_HERE}.commands:accelerator"}},
)
