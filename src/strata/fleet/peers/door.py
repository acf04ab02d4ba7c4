"""What this controller answers to others, by the end of the path; and how many questions are answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from strata.core.errors import StrataError
from strata.core.input.decoding import decoded
from strata.fleet.peers.leaders import PeerAnswer

Handler = Callable[[str, bytes], Awaitable[bytes | AsyncIterator[bytes]]]
"""``handler(controller, body)``: the answer to another controller, whole or as it comes."""

_encode = msgspec.json.Encoder().encode


class PeerDoor:
    """What is behind the door. Parts of the service add theirs while it is put together."""

    def __init__(self, me: str) -> None:
        """``me``: this controller's name."""
        self.me = me
        self.routes: dict[str, Handler] = {}


def each(kind: Any, answer: Callable[[Any], Awaitable[Any]]) -> Handler:
    """Answers a list of questions, each by itself: one that has no answer does not spoil the others."""
    decode = msgspec.json.Decoder(list[kind]).decode

    async def told(question: Any) -> PeerAnswer:
        try:
            return PeerAnswer(value=msgspec.Raw(_encode(await answer(question))))
        except StrataError as error:
            return PeerAnswer(error=error.detail)

    async def handler(_: str, body: bytes) -> bytes:
        return _encode(await asyncio.gather(*map(told, decoded(decode, body))))

    return handler
