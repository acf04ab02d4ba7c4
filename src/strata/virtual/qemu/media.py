"""Fetches what goes into a virtual drive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from strata.core.errors import BadRequest, DeviceError

MOST_BYTES = 2 << 30
_PIECE = 1 << 20
_PATIENCE = aiohttp.ClientTimeout(total=600, sock_connect=10, sock_read=60)


async def fetch(uri: str, to: Path) -> None:
    """Write what is at ``uri`` to a file that only we can read: all of it, or there is no file."""
    if not uri.startswith(("http://", "https://")) or len(uri) > 2048:
        raise BadRequest("an image is fetched over http:// or https://", where=uri[:80])
    scratch = to.with_suffix(".new")
    try:
        await _fetch(uri, scratch)
        scratch.replace(to)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise DeviceError(
            f"the image could not be fetched: {error or type(error).__name__}"[:300], node=uri[:200]
        ) from None
    finally:
        scratch.unlink(missing_ok=True)


async def _fetch(uri: str, to: Path) -> None:
    # Like most BMCs: it knows no authority, so it cannot check a certificate. Nor does it follow elsewhere.
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=_PATIENCE) as http,
        http.get(uri, allow_redirects=False) as reply,
    ):
        if reply.status != 200:
            raise DeviceError(f"the image could not be fetched: HTTP {reply.status}", node=uri[:200])
        to.unlink(missing_ok=True)
        to.touch(mode=0o600)
        size = 0
        with to.open("wb") as file:
            async for piece in reply.content.iter_chunked(_PIECE):
                size += len(piece)
                if size > MOST_BYTES:
                    raise DeviceError(f"the image has more than {MOST_BYTES >> 20} MiB", node=uri[:200])
                await asyncio.to_thread(file.write, piece)
