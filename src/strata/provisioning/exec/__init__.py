"""Commands run on many nodes by their agents."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.provisioning.exec.routes",),
    commands={
        "Their agents": {"node exec": "strata.provisioning.exec.commands:exec_"},
        "The fleet": {"cp": "strata.provisioning.exec.commands:cp"},
    },
)
