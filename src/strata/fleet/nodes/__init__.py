"""Nodes: how their owners describe them, and what is known, done and explained of each."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:NodeService",),
    routes=(".routes.nodes", ".routes.state"),
    commands={
        "The fleet": {"node": ".commands.look:node", "ssh": ".commands.ssh:ssh"},
        "Looking": {
            "node list": ".commands.look:list_",
            "node show": ".commands.look:show",
            "node why": ".commands.look:why",
            "node plan": ".commands.look:plan",
            "node history": ".commands.look:history",
        },
        "Changing": {
            "node set": ".commands.change:set_",
            "node hold": ".commands.change:hold",
            "node release": ".commands.change:release",
            "node retry": ".commands.change:retry",
            "node add": ".commands.change:add",
            "node edit": ".commands.edit:edit",
            "node delete": ".commands.change:delete",
        },
    },
)
