"""Where a registry may send us: over TLS, and not into networks that only we can reach.

A registry names other places (redirects to where blobs are, where tokens are given). Without a rule it could have us
ask services of this machine, of the management network or of a cloud's metadata. The rule is kept where connections
are made, so that a name which means another address by then is no way around it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Literal

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from strata.core.errors import Denied

Place = Literal["everywhere", "private", "loopback", "nowhere"]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Reach(AbstractResolver):
    """What one pull may connect to. ``home``: the registry as the administrator wrote it, which may be anywhere.
    ``trusted``: other hosts that the administrator named (the proxy)."""

    def __init__(self, home: URL, trusted: Collection[str] = (), resolver: AbstractResolver | None = None) -> None:
        self.home = home
        self._trusted = {home.host, *trusted}
        self._resolver = resolver or ThreadedResolver()
        address = _address(home.host or "")
        self._places: set[Place] = {place_of(address)} if address else set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host that may be connected to; raises ``Denied`` if it has others only."""
        found = await self._resolver.resolve(host, port, family)
        if host == self.home.host:
            # Where the registry is, its token service and its blobs may be as well.
            self._places |= {place_of(ipaddress.ip_address(one["host"].partition("%")[0])) for one in found}
        if host in self._trusted:
            return found
        good = [one for one in found if self._may(one["host"])]
        if found and not good:
            raise self._denied(host)
        return good

    async def close(self) -> None:
        """Let go of the resolver."""
        await self._resolver.close()

    def is_home(self, url: URL) -> bool:
        """Whether it is the registry itself: scheme, host and port."""
        return url.origin() == self.home.origin()

    def check(self, url: URL) -> None:
        """Raise ``Denied`` unless we would go there."""
        shown = str(url.with_user(None).with_query(None))[:120] if url.host else repr(str(url))[:120]
        if url.user or url.password:
            raise Denied(f"the registry gives us a login for {shown}, which we do not take", where=self.home.authority)
        if self.is_home(url):
            return
        if url.scheme != "https" or not url.host:
            raise Denied(
                f"the registry sends us to a place without TLS: {shown}",
                where=self.home.authority,
                hint="have it name places that begin with https://",
            )
        if _address(url.host) is not None and not self._may(url.host):
            raise self._denied(url.host)

    def _may(self, host: str) -> bool:
        address = _address(host.partition("%")[0])
        place = place_of(address) if address else "nowhere"
        return place == "everywhere" or (place != "nowhere" and place in self._places)

    def _denied(self, host: str) -> Denied:
        return Denied(
            f"the registry sends us to {host[:100]}, which is in a network that is not its own",
            where=self.home.authority,
            hint="if that is right, pull from there, or import an archive",
        )


def place_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Place:
    """Who can reach it: everybody, the site, this machine; or nobody should."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return place_of(inner)
    if address.is_loopback or address.is_unspecified:
        return "loopback"
    if address.is_link_local or address.is_multicast or (address.is_reserved and not address.is_global):
        return "nowhere"
    return "everywhere" if address.is_global else "private"


def is_here(host: str) -> bool:
    """Whether a host, as somebody wrote it, is this machine: then it may be spoken to without TLS."""
    address = _address(host)
    return address.is_loopback if address else host == "localhost"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
