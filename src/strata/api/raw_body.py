"""The body of a request to one of the raw ASGI applications, whole and bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from strata.core.errors import BadRequest

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


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
