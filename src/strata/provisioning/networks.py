"""The networks that machines boot from, as a controller serves them: its own file (YAML) says so, or the site does
for all controllers (``bootnets``). Serves nothing.

::

    boot_port: 4280
    unknown: discover
    subnets:
      - network: 10.77.0.0/24
        interface: br0
        server: 10.77.0.1
        gateway: 10.77.0.1
        dns: [10.77.0.1]
        domain: cluster.example
        range: 10.77.0.10-10.77.0.250
      - network: 10.78.0.0/24
        interface: br0
        server: 10.77.0.1
        gateway: 10.78.0.1
        relays: [10.78.0.2, 10.78.0.3]
    ipv6:
      - {prefix: "fd77::/64", interface: br0, dns: ["fd77::1"]}
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest, Unavailable
from strata.core.input.yamltree import tree

Unknown = Literal["ignore", "discover"]
"""What becomes of a machine that is no node: no answer, or an address for a while and the discovery boot."""

InterfaceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,15}$(?!\n)")]
DomainName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*)?$(?!\n)", max_length=64)]
Port = Annotated[int, Meta(ge=1, le=65534)]

MOST_DISCOVERED = 1024
"""Machines that are no nodes can hold this many addresses of a subnet at once."""

_MOST_SHOWN = 12
"""Of a list in an error."""


class Span(msgspec.Struct, frozen=True):
    """Addresses from ``first`` to ``last``, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mapping of the file."""


class Subnet(_Part, frozen=True, kw_only=True):
    """One IPv4 network. ``server`` outside of ``network``: its machines reach us through a relay only."""

    network: IPv4Network
    interface: InterfaceName
    """Where its requests arrive: those of its machines, or of its relays. Nobody is answered anywhere else."""
    server: IPv4Address
    """Our own address as its machines (or relays) know it."""
    gateway: IPv4Address | None = None
    relays: Annotated[tuple[IPv4Address, ...], Meta(max_length=256)] = ()
    """Addresses of the relays that pass its machines' requests on: what they write into them (giaddr), and what they
    send from where that is another. Nobody else is answered as a relay. Empty: the gateway, where its machines reach us
    through a relay only; else none."""
    dns: Annotated[tuple[IPv4Address, ...], Meta(max_length=3)] = ()
    domain: DomainName = ""
    lease: Annotated[int, Meta(ge=60, le=30 * 86400)] = 3600
    """Seconds."""
    range: str = ""
    """Addresses to give to nodes that have none: ``10.77.0.10-10.77.0.250``. Empty: all that are free."""
    discovery: str = ""
    """The part for machines that are no nodes. Empty: the last eighth of ``range``, at most 1024 addresses."""
    trust_ports: bool = False
    """The switches write option 82 themselves (DHCP snooping) and remove what machines write: believe it without
    a relay, too."""

    check_macs: bool = True
    """Give boot data only to the node's own MAC, where we see the MAC of who asks. To be false where routers or
    switches answer ARP in the place of machines."""

    advertise: bool = True
    """Answer machines that look for an IPv6 router, also where ``ipv6`` has nothing for them: iPXE would wait 16
    seconds for one at every boot. To be false where another router speaks for the network."""

    @property
    def is_local(self) -> bool:
        """Its machines are on the same link as we."""
        return self.server in self.network

    @property
    def relayed_by(self) -> tuple[IPv4Address, ...]:
        """The relays that are answered."""
        return self.relays or ((self.gateway,) if self.gateway is not None and not self.is_local else ())

    @property
    def span(self) -> Span:
        """What may be given out."""
        if self.range:
            return _span(self.range)
        low, high = int(self.network.network_address), int(self.network.broadcast_address)
        return Span(low + 1, high - 1)

    @property
    def discovery_span(self) -> Span:
        """What machines may get that are no nodes."""
        if self.discovery:
            return _span(self.discovery)
        whole = self.span
        return Span(whole.last - max(1, min(whole.size // 8, MOST_DISCOVERED)) + 1, whole.last)

    @property
    def reserved(self) -> frozenset[int]:
        """Addresses that are never given out."""
        ends = {int(self.network.network_address), int(self.network.broadcast_address)}
        own = {int(one) for one in (self.server, self.gateway, *self.relays, *self.dns) if one is not None}
        return frozenset(ends | own)


class Prefix(_Part, frozen=True, kw_only=True):
    """One IPv6 network whose machines make their own addresses (SLAAC); we announce the prefix and the resolvers."""

    prefix: IPv6Network
    interface: InterfaceName
    dns: Annotated[tuple[IPv6Address, ...], Meta(max_length=3)] = ()
    domains: Annotated[tuple[DomainName, ...], Meta(max_length=6)] = ()


class Networks(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything that the boot network consists of. The one that a service goes by is changed in place
    (``bootnets``)."""

    boot_port: Port = 4280
    """Where the boot server speaks HTTP; the next port serves kernels."""
    unknown: Unknown = "ignore"
    attempts: Annotated[int, Meta(ge=1, le=100)] = 5
    """A node that started to boot so often without arriving is held."""
    subnets: Annotated[tuple[Subnet, ...], Meta(max_length=4096)] = ()
    ipv6: Annotated[tuple[Prefix, ...], Meta(max_length=4096)] = ()

    def subnet_of(self, address: str) -> Subnet | None:
        """The subnet that an IPv4 address is in."""
        try:
            found = IPv4Address(address)
        except ValueError:
            return None
        return next((subnet for subnet in self.subnets if found in subnet.network), None)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Where DHCP listens."""
        return tuple(dict.fromkeys(subnet.interface for subnet in self.subnets))

    @property
    def advertised(self) -> tuple[str, ...]:
        """Where routers are advertised."""
        local = (subnet.interface for subnet in self.subnets if subnet.is_local and subnet.advertise)
        return tuple(dict.fromkeys((*local, *(prefix.interface for prefix in self.ipv6))))


def read(path: Path) -> Networks:
    """The networks in a file, for this machine to serve; ``BadRequest`` says what is wrong with it and where,
    ``Unavailable`` which of its interfaces is not here."""
    networks = parse_file(path)
    require_interfaces(networks, str(path))
    return networks


def parse_file(path: Path) -> Networks:
    """The networks in a file, whether or not their interfaces are here."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadRequest(f"cannot read it: {reason}", where=str(path)) from None
    return parse(text, source=str(path))


def require_interfaces(networks: Networks, source: str) -> None:
    """Raise ``Unavailable`` if one of the interfaces is not on this machine."""
    there = sorted(name for _, name in socket.if_nameindex())
    described: Sequence[tuple[str, Sequence[Subnet | Prefix]]] = (
        ("subnets", networks.subnets),
        ("ipv6", networks.ipv6),
    )
    for key, parts in described:
        for at, part in enumerate(parts):
            if part.interface not in there:
                raise _no_interface(part.interface, there, f"{source}: {key}[{at}].interface")


def _no_interface(name: str, there: list[str], where: str) -> Unavailable:
    close = difflib.get_close_matches(name, there, 1)
    shown = ", ".join(there[:_MOST_SHOWN]) + (f" and {len(there) - _MOST_SHOWN} more" if there[_MOST_SHOWN:] else "")
    return Unavailable(
        f"this machine has no interface {name}; it has {shown}" + (f". Did you mean {close[0]}?" if close else ""),
        where=where,
        hint=f"name one of these in the file, or see that {name} is there before the service starts",
    )


def parse(text: str, *, source: str) -> Networks:
    """The networks that ``text`` describes; ``BadRequest`` names ``source``, the key, and what is accepted."""
    found = tree(text, source) or {}
    if not isinstance(found, dict):
        raise BadRequest("expected a mapping (key: value)", where=source)
    found = {key: value for key, value in found.items() if value != ""}
    for key, kind in (("subnets", Subnet), ("ipv6", Prefix)):
        if isinstance(found.get(key), list):
            # One by one: an error says which.
            found[key] = [convert(_filled(item), kind, source, f"{key}[{at}]") for at, item in enumerate(found[key])]
    networks: Networks = convert(found, Networks, source, "")
    checked(networks, source)
    return networks


def _filled(item: Any) -> Any:
    """A key without a value (``gateway:``) says the same as no key."""
    return {key: value for key, value in item.items() if value != ""} if isinstance(item, dict) else item


def convert(data: Any, kind: Any, source: str, place: str = "") -> Any:
    """``data`` as a ``kind``; ``BadRequest`` names ``source``, the key in ``place``, and what is accepted."""
    try:
        return msgspec.convert(data, kind, strict=False, dec_hook=_address)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `")
        below = path.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
        where = ".".join(filter(None, (place, below)))
        raise BadRequest(_words(said, kind), where=f"{source}: {where}" if where else source) from None


def _address(kind: type[Any], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError as error:
        version = 6 if kind in (IPv6Address, IPv6Network) else 4
        example = {4: "10.77.0.0/24", 6: "fd77::/64"}[version] if "Network" in kind.__name__ else ""
        what = f"an IPv{version} network such as {example}" if example else f"an IPv{version} address"
        detail = "its host bits are set" if "host bits" in str(error) else f"found {str(value)[:60]!r}"
        raise ValueError(f"expected {what}; {detail}") from None


def _words(said: str, kind: Any) -> str:
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", said, re.DOTALL):
        keys = list(kind.__struct_fields__)
        close = difflib.get_close_matches(unknown[1][:60], keys, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return f"unknown key {unknown[1][:60]!r}; {meant}accepted are {', '.join(keys)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", said):
        return f"{missing[1]} is missing"
    if wrong := re.fullmatch(r"Invalid enum value (.*)", said, re.DOTALL):
        return f"{wrong[1][:60]} is neither 'ignore' nor 'discover'"
    if said.startswith("Expected `array"):
        return "expected a list ([...])"
    if said.startswith("Expected `object"):
        return "expected a mapping (key: value)"
    if said.startswith("Expected `int"):
        return f"expected a whole number{said.partition('int`')[2][:60]}"
    if said.startswith("Expected `bool`"):
        return "expected true or false"
    if said.startswith("Expected `str` matching regex"):
        return "expected a name (letters, digits, '-', '_' and '.'), such as br0 or cluster.example"
    return (said[:1].lower() + said[1:])[:300]


def _span(text: str) -> Span:
    first, _, last = text.partition("-")
    return Span(int(IPv4Address(first.strip())), int(IPv4Address(last.strip())))


def _check_relays(subnet: Subnet, where: str) -> None:
    if not subnet.is_local and not subnet.relayed_by:
        raise BadRequest(
            f"{subnet.server} is not in {subnet.network}, so its machines need a relay, and none is named",
            where=f"{where}.relays",
            hint="list the relays' addresses: relays: [10.78.0.2]; or name the gateway that relays",
        )
    for relay in subnet.relays:
        if relay == subnet.server:
            raise BadRequest(f"{relay} is the boot server's own address", where=f"{where}.relays")
        if relay.is_unspecified or relay.is_multicast or relay.is_loopback or relay == IPv4Address("255.255.255.255"):
            raise BadRequest(f"{relay} is no address of a relay", where=f"{where}.relays")


def checked(networks: Networks, source: str) -> None:
    """Raise ``BadRequest`` unless what the keys say fits together."""
    for at, subnet in enumerate(networks.subnets):
        where = f"{source}: subnets[{at}]"
        low, high = int(subnet.network.network_address), int(subnet.network.broadcast_address)
        if subnet.network.prefixlen > 30:
            raise BadRequest(f"{subnet.network} has no room for machines", where=f"{where}.network")
        if subnet.gateway is not None and subnet.gateway not in subnet.network:
            raise BadRequest(f"{subnet.gateway} is not in {subnet.network}", where=f"{where}.gateway")
        for key, text in (("range", subnet.range), ("discovery", subnet.discovery)):
            if not text:
                continue
            try:
                span = _span(text)
            except ValueError:
                raise BadRequest(
                    f"expected FIRST-LAST such as 10.77.0.10-10.77.0.250; found {text[:60]!r}", where=f"{where}.{key}"
                ) from None
            if not low < span.first <= span.last < high:
                raise BadRequest(f"{text} is no range of {subnet.network}", where=f"{where}.{key}")
        if subnet.discovery_span.size > MOST_DISCOVERED:
            raise BadRequest(f"more than {MOST_DISCOVERED} addresses", where=f"{where}.discovery")
        for other in networks.subnets[:at]:
            if other.network.overlaps(subnet.network):
                raise BadRequest(f"{subnet.network} overlaps {other.network}", where=f"{where}.network")
        _check_relays(subnet, where)
    for at, prefix in enumerate(networks.ipv6):
        if prefix.prefix.prefixlen != 64:
            raise BadRequest("machines make their own addresses in a /64 only", where=f"{source}: ipv6[{at}].prefix")
