"""Asks the local networks for Redfish services (SSDP, as the Redfish specification describes it)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from strata.core.errors import BadRequest
from strata.hardware.discovery.sources import address_of

GROUP, PORT = "239.255.255.250", 1900
TARGET = "urn:dmtf-org:service:redfish-rest:1"
MOST = 65_536


async def search(
    *,
    interfaces: Sequence[str] = ("",),
    group: str = GROUP,
    port: int = PORT,
    wait: float = 3.0,
    plain: bool = False,
) -> list[str]:
    """Addresses of the services that answer within ``wait`` seconds. ``interfaces``: own addresses to ask from (empty:
    the system's choice). ``plain``: believe services without TLS, too."""
    loop = asyncio.get_running_loop()
    heard = _Heard(plain)
    request = (
        f'M-SEARCH * HTTP/1.1\r\nHOST: {group}:{port}\r\nMAN: "ssdp:discover"\r\nMX: {max(1, int(wait) - 1)}\r\n'
        f"ST: {TARGET}\r\n\r\n"
    ).encode()
    transports = []
    try:
        for own in interfaces:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
            try:
                if own:
                    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
                sock.bind((own, 0))
                transport, _ = await loop.create_datagram_endpoint(lambda: heard, sock=sock)
            except OSError as wrong:
                sock.close()
                raise BadRequest(f"cannot ask from here: {wrong.strerror}", where=f"interface {own!r}") from None
            transports.append(transport)
        for _ in range(2):  # datagrams get lost
            for transport in transports:
                transport.sendto(request, (group, port))
            await asyncio.sleep(wait / 2)
    finally:
        for transport in transports:
            transport.close()
    return sorted(heard.found)


class _Heard(asyncio.DatagramProtocol):
    def __init__(self, plain: bool) -> None:
        self.found: set[str] = set()
        self._plain = plain

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        address = answer(data, addr[0], plain=self._plain)
        if address and len(self.found) < MOST:
            self.found.add(address)

    def error_received(self, exc: Exception) -> None:
        """Nobody there: that is an answer, too."""


def answer(data: bytes, sender: str, *, plain: bool = False) -> str:
    """The address in an answer to our search; empty where it is none, or points to somebody else than who sent it:
    we would bring our password there."""
    lines = data[:4096].decode("utf-8", "replace").split("\r\n")
    if not lines[0].startswith("HTTP/1.1 200"):
        return ""
    headers = {
        name.strip().upper(): value.strip()
        for line in lines[1:]
        for name, found, value in [line.partition(":")]
        if found
    }
    if not headers.get("ST", "").startswith(TARGET.rpartition(":")[0]):
        return ""
    try:
        address = address_of(headers.get("AL", ""))
    except BadRequest:
        return ""
    parts = urlsplit(address)
    safe = parts.scheme == "https" or (plain and parts.scheme == "http")
    return address if safe and parts.hostname == sender else ""
