"""Simulated BMCs that answer when somebody looks for Redfish services on the network (SSDP M-SEARCH)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import cast

GROUP = "239.255.255.250"
PORT = 1900
SERVICE = "urn:dmtf-org:service:redfish-rest:1"
_WANTED = frozenset({SERVICE, "ssdp:all", "upnp:rootdevice", "urn:dmtf-org:service:redfish-rest:1:0"})


class Announcer(asyncio.DatagramProtocol):
    """Answers searches, for every BMC that ``services`` names (UUID, URL of its root)."""

    def __init__(self, services: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self.searches = 0
        self.port = 0
        """Where it listens."""
        self._services = services
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self, address: str = "127.0.0.1", port: int = PORT) -> None:
        """Listen on the interface with this address: to the multicast group, and to searches sent straight to it."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        member = socket.inet_aton(GROUP) + socket.inet_aton(address)
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=listener)

    def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """A search, or something else that is not answered."""
        lines = data[:2048].decode("latin-1").split("\r\n")
        if not lines[0].startswith("M-SEARCH * HTTP/1."):
            return
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("st") not in _WANTED or self._transport is None:
            return
        self.searches += 1
        for uuid, url in self._services():
            reply = (
                "HTTP/1.1 200 OK",
                "CACHE-CONTROL: max-age=1800",
                "EXT:",
                f"AL: {url}",
                f"LOCATION: {url}",
                "SERVER: simulated/1.0 UPnP/1.1",
                f"ST: {SERVICE}:0",
                f"USN: uuid:{uuid}::{SERVICE}:0",
            )
            self._transport.sendto("\r\n".join((*reply, "", "")).encode("latin-1"), addr)
