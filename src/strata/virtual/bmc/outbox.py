"""What simulated BMCs send by themselves: events, over HTTP or as syslog datagrams."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import aiohttp

RETRIES = 3
_RETRY_AFTER = 0.2
_AT_A_TIME = 64


class Outbox:
    """Sends in the background and forgets what could not be delivered."""

    def __init__(self) -> None:
        self.delivered = 0
        self.lost = 0
        self._http: aiohttp.ClientSession | None = None
        self._udp: socket.socket | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def send(self, destination: str, body: bytes, name: str) -> None:
        """Send ``body`` as the BMC ``name``; the scheme of ``destination`` says how."""
        if destination.startswith("syslog://"):
            self._datagram(destination, body)
            return
        task = asyncio.get_running_loop().create_task(self._post(destination, body))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        if self._udp is not None:
            self._udp.close()

    async def _post(self, destination: str, body: bytes) -> None:
        async with self._slots:
            for attempt in range(RETRIES + 1):
                if attempt:
                    await asyncio.sleep(_RETRY_AFTER)
                if await self._try(destination, body):
                    self.delivered += 1
                    return
            self.lost += 1

    async def _try(self, destination: str, body: bytes) -> bool:
        if self._http is None:
            # BMCs seldom know the certificates of whom they push to.
            connector = aiohttp.TCPConnector(ssl=False, limit=_AT_A_TIME)
            self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=5))
        headers = {"Content-Type": "application/json", "OData-Version": "4.0"}
        try:
            async with self._http.post(destination, data=body, headers=headers, allow_redirects=False) as reply:
                return reply.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False

    def _datagram(self, destination: str, body: bytes) -> None:
        if self._udp is None:
            self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._udp.setblocking(False)
        try:
            parts = urlsplit(destination)
            self._udp.sendto(body, (parts.hostname or "", parts.port or 514))
            self.delivered += 1
        except (OSError, ValueError):
            self.lost += 1
