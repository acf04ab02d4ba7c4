"""Which addresses nodes can have, and which one an interface gets that was given none: the next free one of a subnet,
and it keeps it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address

import msgspec

from strata.core.node import Interface
from strata.provisioning.networks import Networks, Span, Subnet

_MOST_SHOWN = 12
"""Of a list in an error."""


def misplaced(networks: Networks) -> Callable[[str], str]:
    """What tells why no node can have an address: it is in none of the networks, or somebody else's by what they say.
    Empty: one can. A hundred thousand may be asked about at once."""
    ordered = sorted(networks.subnets, key=lambda subnet: int(subnet.network.network_address))
    firsts = [int(subnet.network.network_address) for subnet in ordered]
    lasts = [int(subnet.network.broadcast_address) for subnet in ordered]
    servers = {int(subnet.server) for subnet in ordered}
    names = [str(subnet.network) for subnet in networks.subnets]
    shown = ", ".join(names[:_MOST_SHOWN]) + (f" and {len(names) - _MOST_SHOWN} more" if names[_MOST_SHOWN:] else "")

    def why(address: str) -> str:
        number = int(IPv4Address(address))
        at = bisect_right(firsts, number) - 1
        if at < 0 or number > lasts[at]:
            return f"{address} is in none of the boot networks: {shown}"
        if number in (firsts[at], lasts[at]):
            return f"{address} is the address of {ordered[at].network} itself, or of all its machines"
        if number in servers:
            return f"{address} is the boot server's own address"
        return ""

    # Where there is no IPv4 network, addresses are nobody's business here.
    return why if ordered else lambda address: ""


class Pool:
    """The free addresses of the networks, for one round of giving out. ``is_taken`` tells of addresses that nodes have;
    what this pool gave out it knows itself."""

    def __init__(self, networks: Networks, is_taken: Callable[[str], bool]) -> None:
        self._is_taken = is_taken
        guests = networks.unknown == "discover"
        self._free = [_Cursor(subnet, guests=guests) for subnet in networks.subnets]
        self._networks = networks

    def assign(self, interfaces: Sequence[Interface]) -> tuple[Interface, ...]:
        """The interfaces, each that had no address with one: the first in the first subnet of the file in which the
        node has none yet, and so on. Where no subnet is left, or it is full, there is none."""
        if all(interface.address for interface in interfaces):
            return tuple(interfaces)
        there = {self._networks.subnet_of(interface.address) for interface in interfaces if interface.address}
        left = (cursor for cursor in self._free if cursor.subnet not in there)
        return tuple(
            interface if interface.address else msgspec.structs.replace(interface, address=self._next(next(left, None)))
            for interface in interfaces
        )

    def _next(self, cursor: _Cursor | None) -> str:
        return cursor.next(self._is_taken) if cursor is not None else ""


class _Cursor:
    """Goes once through what a subnet may give to nodes."""

    def __init__(self, subnet: Subnet, *, guests: bool) -> None:
        self.subnet = subnet
        self._span = subnet.span
        self._guests = subnet.discovery_span if guests else Span(0, -1)
        self._reserved = subnet.reserved
        self._at = self._span.first

    def next(self, is_taken: Callable[[str], bool]) -> str:
        """The next free address; empty: there is none."""
        while self._at <= self._span.last:
            number = self._at
            self._at += 1
            if self._guests.first <= number <= self._guests.last:
                self._at = self._guests.last + 1
                continue
            address = str(IPv4Address(number))
            if number not in self._reserved and not is_taken(address):
                return address
        return ""
