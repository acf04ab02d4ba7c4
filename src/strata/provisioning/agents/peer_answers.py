"""What this controller answers to others about the agents that are attached to it: the other end of ``elsewhere``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from strata.fleet.peers.door import Handler, each
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.service import AgentService
from strata.provisioning.exec.fanout import ROUTE as EXEC
from strata.provisioning.exec.fanout import for_peer

Limits = Callable[[str, Mapping[str, int]], Awaitable[Mapping[str, Any]]]


class LimitsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the processors of one node."""

    node: str
    wanted: dict[str, int]


def agent_routes(hub: Hub, agents: AgentService, limits: Limits) -> Mapping[str, Handler]:
    """The routes about agents. ``limits``: sets limits through an agent that is attached here."""

    async def run(_: str, body: bytes) -> AsyncIterator[bytes]:
        return for_peer(hub, body)

    async def agent(name: str) -> Any:
        return agents.agent_here(name)

    async def unknown(_: None) -> Any:
        return agents.unknown_here()

    async def forget(mac: str) -> Any:
        return agents.forget_here(mac)

    async def images(_: None) -> Any:
        return await agents.images_held_here()

    async def hardware(_: None) -> Any:
        return await agents.hardware_here()

    async def limit(asked: LimitsWanted) -> Any:
        return await limits(asked.node, asked.wanted)

    return {
        EXEC: run,
        "agent": each(str, agent),
        "inventory": each(str, agents.inventory_here),
        "unknown": each(type(None), unknown),
        "forget": each(str, forget),
        "images": each(type(None), images),
        "hardware": each(type(None), hardware),
        "limits": each(LimitsWanted, limit),
    }
