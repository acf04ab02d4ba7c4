"""The whole body of an answer, if it is not too long. (aiohttp's own ``read`` gives what has come so far.)"""

from __future__ import annotations

import aiohttp


async def bounded(reply: aiohttp.ClientResponse, most: int) -> bytes | None:
    """All of it; None: it has more than ``most`` bytes."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)
