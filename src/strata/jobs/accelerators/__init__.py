"""Accelerators and fast networks: what a machine has, what a job gets of it, and how containers are told."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    services=(".service:AcceleratorService",),
    routes=(".routes",),
    commands={"Jobs": {"accelerator": ".commands:accelerator"}},
)
