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

    return {
        EXEC: run,
        "agent": each(str, agents.agent_here),
        "inventory": each(str, agents.inventory_here),
        "unknown": each(type(None), lambda _: agents.unknown_here()),
        "forget": each(str, agents.forget_here),
        "images": each(type(None), lambda _: agents.images_held_here()),
        "hardware": each(type(None), lambda _: agents.inventories.hardware()),
        "limits": each(LimitsWanted, lambda asked: limits(asked.node, asked.wanted)),
    }
