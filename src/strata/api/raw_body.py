"""The body of a request: in good time, with room for all of them together, and to one of the raw ASGI applications
whole and bounded; and work for whoever asked, for as long as they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from strata.core.errors import BadRequest, TooSlow, Unavailable
from strata.fleet.tasks import all_cancelled

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


SMALL = 64 * 1024
"""Bytes of a body for which there is always room: whoever stops the machine is not kept waiting by those who fill
it."""


class Bodies:
    """Room for the bodies of all requests that are under way, ``most`` bytes together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        """Bytes that are in memory now."""

    def take(self, count: int) -> None:
        """So many bytes more; ``Unavailable`` where there is no room for them."""
        if self.held + count > self._most:
            raise Unavailable(
                f"the service is reading {self.held / 2**20:.0f} MiB of requests already; it takes "
                f"{self._most / 2**20:.0f} MiB at a time",
                where="body",
                hint="nothing was changed: try again in a while, or send less at a time",
            )
        self.held += count

    def give_back(self, count: int) -> None:
        """So many less."""
        self.held -= count


class Held:
    """The body of one request, as far as it has come."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = self._taken = 0

    def of(self, receive: Receive) -> Receive:
        """``receive``, which raises ``Unavailable`` where there is no room for what comes."""

        async def received() -> MutableMapping[str, Any]:
            event = await receive()
            self._size += len(event.get("body", b""))
            if (more := self._size - self._taken) and self._size > SMALL:
                self._bodies.take(more)
                self._taken += more
            return event

        return received

    def let_go(self) -> None:
        """The request has been answered."""
        self._bodies.give_back(self._taken)
        self._taken = 0


async def whole_body(
    receive: Receive, most: int, *, too_long: Exception | None = None, broke_off: Exception | None = None
) -> bytes:
    """All of it. Raises ``too_long`` if it is longer than ``most`` bytes, ``broke_off`` if it did; ``BadRequest`` where
    the protocol has no words of its own for that."""
    parts: list[bytes] = []
    size = 0
    while (event := await receive())["type"] == "http.request":
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_long or BadRequest(f"a request has at most {most} bytes here", where="body")
        if not event.get("more_body"):
            return b"".join(parts)
    raise broke_off or BadRequest("the request broke off", where="body")


async def while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do ``work`` until it ends, or nobody listens any more. Raises what it failed with."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await all_cancelled((working, gone))
    if not working.cancelled() and (error := working.exception()) is not None:
        raise error


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
