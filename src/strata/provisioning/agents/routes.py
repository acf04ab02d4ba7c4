"""What nodes' agents say, and the machines that nobody knows."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter

from strata.api.routing import Routes
from strata.api.services import NodePath
from strata.provisioning.agents.service import AgentService

_TAG = "agents"

MacPath = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$(?!\n)", max_length=17)]


_NODE = Routes(AgentService, "node", tag=_TAG)
_HARDWARE = Routes(AgentService, "hardware", tag=_TAG)
_UNKNOWN_MACHINE = Routes(AgentService, "unknown-machine", tag=_TAG)

_NODE.get("show_agent", "/v1/nodes/{name:str}/agent", AgentService.agent, 404, name=NodePath)
_HARDWARE.get(
    "show_agent_inventory", "/v1/nodes/{name:str}/agent/inventory", AgentService.inventory, 404, name=NodePath
)
_UNKNOWN_MACHINE.get("list_unknown", "/v1/boot/unknown", AgentService.unknown)
_NODE.post(
    "adopt_unknown", "/v1/boot/unknown/{mac:str}", AgentService.adopt, "create", 404, 409, success=201, mac=MacPath
)
_UNKNOWN_MACHINE.delete("forget_unknown", "/v1/boot/unknown/{mac:str}", AgentService.forget, 404, mac=MacPath)
