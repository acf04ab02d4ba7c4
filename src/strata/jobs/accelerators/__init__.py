"""Accelerators and fast networks: what a machine has, what a job gets of it, and how containers are told."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:AcceleratorService",),
    routes=(".routes",),
    commands={"Jobs": {"accelerator": ".commands:accelerator"}},
)
