"""What nodes' agents say, and the machines that nobody knows."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post
from litestar.params import JSONBody, PathParameter

from strata.api.rights import needs
from strata.api.services import Asked, NodePath
from strata.core.texts import ListOf
from strata.fleet.nodes.records import NodeView
from strata.provisioning.agents import records as a
from strata.provisioning.agents.service import AgentService

_TAG = "agents"

MacPath = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$(?!\n)", max_length=17)]


@get("/v1/nodes/{name:str}/agent", tags=[_TAG], **needs("read", "node", 404))
async def show_agent(ask: Asked, name: NodePath) -> a.AgentView:
    """What the node's agent last said: its personality, each member's state and reason, health, metrics."""
    return await ask.of(AgentService).agent(ask.who, name)


@get("/v1/nodes/{name:str}/agent/inventory", tags=[_TAG], **needs("read", "hardware", 404))
async def show_agent_inventory(ask: Asked, name: NodePath) -> a.InventoryView:
    """What the node's agent said of its hardware."""
    return await ask.of(AgentService).inventory(ask.who, name)


@get("/v1/boot/unknown", tags=[_TAG], **needs("read", "unknown-machine"))
async def list_unknown(ask: Asked) -> ListOf[a.UnknownMachine]:
    """Machines that booted, are no nodes, and wait to be adopted."""
    return await ask.of(AgentService).unknown(ask.who)


@post("/v1/boot/unknown/{mac:str}", tags=[_TAG], **needs("create", "node", 404, 409, body=True))
async def adopt_unknown(ask: Asked, mac: MacPath, data: JSONBody[a.AdoptMachine]) -> NodeView:
    """Make a node of one. It boots as that node within half a minute."""
    return await ask.of(AgentService).adopt(ask.who, mac, data)


@delete("/v1/boot/unknown/{mac:str}", tags=[_TAG], **needs("delete", "unknown-machine", 404))
async def forget_unknown(ask: Asked, mac: MacPath) -> None:
    """Forget one, until it says hello again."""
    await ask.of(AgentService).forget(ask.who, mac)
