"""The body of a request: in good time, and to one of the raw ASGI applications whole and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from strata.core.errors import BadRequest, TooSlow

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def in_time(receive: Receive, seconds: float, rate: float) -> Receive:
    """``receive``, which raises ``TooSlow`` when a body takes longer than ``seconds`` and one more for each ``rate``
    bytes: whoever sends a byte now and then holds nothing for long. ``BadRequest`` when it breaks off. What comes after
    the body has all the time."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    whole = False

    async def received() -> MutableMapping[str, Any]:
        nonlocal ends, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(ends):
                event = await receive()
        except TimeoutError:
            raise TooSlow(
                "the body took too long to arrive", where="body", hint="nothing was changed: try again"
            ) from None
        if event["type"] != "http.request":
            raise BadRequest("the request broke off", where="body")
        if event.get("more_body"):
            ends += len(event["body"]) / rate
        else:
            whole = True
        return event

    return received


async def whole_body(receive: Receive, most: int) -> bytes:
    """All of it; ``BadRequest`` if it is longer than ``most`` bytes, or broke off."""
    parts: list[bytes] = []
    size = 0
    while (event := await receive())["type"] == "http.request":
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise BadRequest(f"a request has at most {most} bytes here", where="body")
        if not event.get("more_body"):
            return b"".join(parts)
    raise BadRequest("the request broke off", where="body")
