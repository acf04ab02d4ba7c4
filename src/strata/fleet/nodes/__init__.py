"""Nodes: how their owners describe them, and what is known, done and explained of each."""

from strata.core.room import Room

_LOOK, _CHANGE = ".commands.look", ".commands.change"

ROOM = Room(
    services=(".service:NodeService",),
    routes=(".routes.nodes", ".routes.state"),
    commands={
        "The fleet": {"node": f"{_LOOK}:node", "ssh": ".commands.ssh:ssh"},
        "Looking": {
            "node list": f"{_LOOK}:list_",
            "node show": f"{_LOOK}:show",
            "node why": f"{_LOOK}:why",
            "node plan": f"{_LOOK}:plan",
            "node history": f"{_LOOK}:history",
        },
        "Changing": {
            "node set": f"{_CHANGE}:set_",
            "node hold": f"{_CHANGE}:hold",
            "node release": f"{_CHANGE}:release",
            "node retry": f"{_CHANGE}:retry",
            "node add": f"{_CHANGE}:add",
            "node edit": ".commands.edit:edit",
            "node delete": f"{_CHANGE}:delete",
        },
    },
)
