"""Finds BMCs in ranges of addresses: who listens, and does it speak Redfish or IPMI?

Nothing is logged into here: a connection, one read of the service root without credentials, one RMCP ping.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

import aiohttp
import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.core.fault_isolation import contained
from strata.core.input.foreign import read_json
from strata.fleet.bounded import bounded
from strata.fleet.files import share
from strata.hardware.bmc.redfish.endpoint import below
from strata.hardware.discovery.sources import address_of

MOST_ADDRESSES = 65_536
RMCP_PORT = 623
_PING = bytes.fromhex("0600ff06000011be80")
_PONG = bytes.fromhex("000011be40")
_ROOT = "/redfish/v1/"

Address = IPv4Address | IPv6Address


class ScanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How hard to look. Times in seconds."""

    patience: float = 1.5
    """For a connection: long enough for one repeated SYN."""
    answer: float = 5.0
    """For a service root, once connected: slow BMCs take seconds for the handshake alone."""
    at_once: int = 1024
    """Connections tried at a time; a quarter of the file descriptors at most."""
    per_second: int = 2000
    """Connections and pings begun in a second: switches and firewalls have limits, too."""
    ipmi: bool = True


class Range(msgspec.Struct, frozen=True):
    """Addresses from ``first`` to ``last``, where a scheme and a port may be given."""

    first: int
    last: int
    version: int
    scheme: str
    port: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def part(self, begin: int, end: int) -> list[str]:
        """Some of the addresses, by position."""
        kind = IPv4Address if self.version == 4 else IPv6Address
        return [str(kind(number)) for number in range(self.first + begin, min(self.first + end, self.last + 1))]

    def url(self, host: str) -> str:
        """Where a Redfish service on ``host`` is."""
        name = f"[{host}]" if ":" in host else host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return f"{self.scheme}://{name}" + ("" if usual else f":{self.port}")


def range_of(text: str) -> Range:
    """Read ``10.1.0.0/20``, ``10.1.0.1-10.1.3.254`` or ``10.1.0.7``; ``https://`` and ``:8443`` may be around it."""
    where = f"range {text[:80]!r}"
    given = text.strip()
    scheme, found, rest = given.partition("://")
    if not found:
        scheme, rest = "https", given
    if scheme not in ("https", "http"):
        raise BadRequest("a range must begin with https://, http:// or an address", where=where)
    body, colon, number = rest.rpartition(":")
    port = 443 if scheme == "https" else 80
    if colon and ":" not in body:  # in an IPv6 address a colon is no port
        if not number.isdecimal() or not 0 < int(number) < 65_536:
            raise BadRequest(f"not a port: {number[:20]!r}", where=where)
        rest, port = body, int(number)
    try:
        if "-" in rest:
            low, high = (ip_address(end.strip()) for end in rest.split("-", 1))
        else:
            network = ip_network(rest, strict=False)
            low, high = network[0], network[-1]
            if network.version == 4 and network.num_addresses > 2:
                low, high = network[1], network[-2]  # the network itself and its broadcast are nobody
    except ValueError as wrong:
        raise BadRequest(f"not a range: {wrong}", where=where, hint="10.1.0.0/20 or 10.1.0.1-10.1.3.254") from None
    if low.version != high.version or int(low) > int(high):
        raise BadRequest("ends before it begins", where=where)
    if int(high) - int(low) >= MOST_ADDRESSES:
        raise BadRequest(f"more than {MOST_ADDRESSES} addresses", where=where, hint="give several smaller ranges")
    return Range(int(low), int(high), low.version, scheme, port)


async def scan(
    hosts: Sequence[str], found_in: Range, *, settings: ScanSettings | None = None, rmcp_port: int = RMCP_PORT
) -> list[str]:
    """Addresses (URLs) of the BMCs among ``hosts``, in their order. Redfish is preferred where both are."""
    chosen = settings or ScanSettings()
    async with Prober(chosen) as prober:
        pinging = asyncio.create_task(ping(hosts, chosen, rmcp_port)) if chosen.ipmi else None
        try:
            speaks = await prober.redfish([(host, found_in.port, found_in.url(host)) for host in hosts])
            pongs = await pinging if pinging else set()
        finally:
            if pinging:
                pinging.cancel()
    urls = {host: f"ipmi://[{host}]" if ":" in host else f"ipmi://{host}" for host in pongs}
    urls |= {host: found_in.url(host) for host in speaks}
    return [urls[host] for host in hosts if host in urls]


async def settle(address: str, *, settings: ScanSettings | None = None, rmcp_port: int = RMCP_PORT) -> str:
    """What a bare host (``10.0.0.7``, ``bmc7:8443``) speaks: its address as a URL; empty: nothing that we know."""
    chosen = settings or ScanSettings()
    parts = urlsplit(f"//{address}")
    host, port = parts.hostname or "", parts.port or 443
    async with Prober(chosen) as prober:
        if await prober.redfish([(host, port, f"https://{address}")]):
            return f"https://{address}"
    if chosen.ipmi and parts.port is None:
        try:
            found = (await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM))[0][4][0]
        except OSError:
            return ""
        if await ping([str(found)], chosen, rmcp_port):
            return f"ipmi://{address}"
    return ""


class Prober:
    """Asks who listens and whether it is a Redfish service. A context."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._room = asyncio.Semaphore(share("scans", most=settings.at_once))

    async def __aenter__(self) -> Prober:
        # Whose certificate it is is looked at before anything secret is sent; here nothing is.
        connector = aiohttp.TCPConnector(limit=0, ssl=False, force_close=True)
        timeout = aiohttp.ClientTimeout(total=self._settings.answer)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def redfish(self, targets: Sequence[tuple[str, int, str]]) -> set[str]:
        """The hosts among (host, port, URL) that have a Redfish service."""
        found: set[str] = set()

        async def one(host: str, port: int, url: str) -> None:
            async with self._room:
                with suppress(StrataError), contained(url):
                    if await self._listens(host, port) and await self._is_redfish(url):
                        found.add(host)

        async with asyncio.TaskGroup() as group:
            for at in range(0, len(targets), _BURST):
                part = targets[at : at + _BURST]
                for target in part:
                    group.create_task(one(*target))
                if len(part) == _BURST:
                    await asyncio.sleep(_BURST / self._settings.per_second)
        return found

    async def _listens(self, host: str, port: int) -> bool:
        try:
            async with asyncio.timeout(self._settings.patience):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return False
        writer.transport.abort()
        return True

    async def _is_redfish(self, url: str) -> bool:
        try:
            async with self._http.get(url + _ROOT, allow_redirects=False) as response:
                raw = await bounded(response, 1 << 18)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False
        if raw is None:
            return False
        try:
            root = below(read_json(raw).value)
        except ValueError:
            return False
        return "RedfishVersion" in root or "ServiceRoot" in str(root.get("@odata.type", ""))


_BURST = 100


async def ping(hosts: Sequence[str], settings: ScanSettings, port: int = RMCP_PORT) -> set[str]:
    """The hosts that answer an RMCP presence ping and support IPMI. Each is asked twice: datagrams get lost."""
    loop = asyncio.get_running_loop()
    by_version: dict[int, list[str]] = {}
    for host in hosts:
        by_version.setdefault(6 if ":" in host else 4, []).append(host)
    found: set[str] = set()
    for version, some in by_version.items():
        pongs = _Answers(_ponged)
        local = ("::" if version == 6 else "0.0.0.0", 0)
        transport, _ = await loop.create_datagram_endpoint(lambda pongs=pongs: pongs, local_addr=local)  # type: ignore[misc]
        try:
            for _ in range(2):
                for at in range(0, len(some), _BURST):
                    for host in some[at : at + _BURST]:
                        if host not in pongs.found:
                            transport.sendto(_PING + b"\x01\x00\x00", (host, port))
                    if at + _BURST < len(some):
                        await asyncio.sleep(_BURST / settings.per_second)
                if pongs.found.issuperset(some):
                    break
                await asyncio.sleep(settings.patience / 2)
        finally:
            transport.close()
        found |= pongs.found.intersection(some)
    return found


def _ponged(data: bytes, sender: str) -> str:
    pong = len(data) >= 21 and data[0] == 6 and data[4:9] == _PONG
    return sender if pong and data[20] & 0x80 else ""


class _Answers(asyncio.DatagramProtocol):
    """Who answered, as ``read`` (of a datagram and its sender) makes it out; empty: nobody."""

    def __init__(self, read: Callable[[bytes, str], str]) -> None:
        self.found: set[str] = set()
        self._read = read

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        found = self._read(data, addr[0])
        if found and len(self.found) < MOST:
            self.found.add(found)

    def error_received(self, exc: Exception) -> None:
        """Nobody there: that is an answer, too."""


GROUP, PORT = "239.255.255.250", 1900
TARGET = "urn:dmtf-org:service:redfish-rest:1"
MOST = 65_536


async def search(
    *,
    interfaces: Sequence[str] = ("",),
    group: str = GROUP,
    port: int = PORT,
    wait: float = 3.0,
) -> list[str]:
    """Addresses of the services that answer within ``wait`` seconds. ``interfaces``: own addresses to ask from (empty:
    the system's choice). Services without TLS are not believed."""
    loop = asyncio.get_running_loop()
    heard = _Answers(answer)
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
                raise BadRequest(
                    f"SSDP cannot be sent from here: {wrong.strerror}", where=f"interface {own!r}"
                ) from None
            transports.append(transport)
        for _ in range(2):  # datagrams get lost
            for transport in transports:
                transport.sendto(request, (group, port))
            await asyncio.sleep(wait / 2)
    finally:
        for transport in transports:
            transport.close()
    return sorted(heard.found)


def answer(data: bytes, sender: str) -> str:
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
    return address if parts.scheme == "https" and parts.hostname == sender else ""
