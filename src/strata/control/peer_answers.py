"""What this controller answers to others about the agents that are attached to it: the other end of ``elsewhere``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from strata.control.elsewhere import Told
from strata.control.exec_agents import ROUTE as EXEC
from strata.control.exec_agents import for_peer
from strata.control.service_agents import AgentService
from strata.core.decoding import UNREADABLE
from strata.core.errors import BadRequest, StrataError
from strata.provisioning.agents.hub import Hub

Handler = Callable[[str, bytes], Awaitable[bytes | AsyncIterator[bytes]]]
"""``handler(controller, body)``: the answer to another controller, whole or as it comes."""
Limits = Callable[[str, Mapping[str, int]], Awaitable[Mapping[str, Any]]]

_encode = msgspec.json.Encoder().encode


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

    async def limit(asked: LimitsWanted) -> Any:
        return await limits(asked.node, asked.wanted)

    return {
        EXEC: run,
        "agent": each(str, agent),
        "inventory": each(str, agents.inventory_here),
        "unknown": each(type(None), unknown),
        "forget": each(str, forget),
        "images": each(type(None), images),
        "limits": each(LimitsWanted, limit),
    }


def each(kind: Any, answer: Callable[[Any], Awaitable[Any]]) -> Handler:
    """Answers a list of questions, each by itself: one that has no answer does not spoil the others."""
    decode = msgspec.json.Decoder(list[kind]).decode

    async def told(question: Any) -> Told:
        try:
            return Told(value=msgspec.Raw(_encode(await answer(question))))
        except StrataError as error:
            return Told(error=error.detail)

    async def handler(_: str, body: bytes) -> bytes:
        try:
            questions = decode(body)
        except UNREADABLE as error:
            raise BadRequest(str(error)[:200], where="body") from None
        return _encode(await asyncio.gather(*map(told, questions)))

    return handler
