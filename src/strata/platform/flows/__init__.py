"""Flows: named sequences of steps over nodes; and the start and stop of a whole system, which are made of them."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:FlowService", ".system:SystemFlows"),
    routes=(".routes",),
    commands={
        "What is wanted": {"flow": ".commands.flow:flow"},
        "The fleet": {"system": ".commands.system:system"},
        "The hardware": {"emergency-revoke": ".commands.emergency:emergency_revoke"},
    },
)
