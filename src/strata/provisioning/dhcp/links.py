"""The subnets as the responder needs them: found by interface or relay, their options written once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

import msgspec

from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.guests import Guests
from strata.provisioning.networks import Networks, Subnet


class Net(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """One subnet."""

    subnet: Subnet
    first: int
    last: int
    server: bytes
    server_text: str
    id_option: bytes
    """Our identifier."""
    options: bytes
    """Mask, gateway, resolvers, domain."""
    relays: frozenset[bytes]
    """The relays that are answered."""
    guests: Guests

    def lease(self, seconds: int) -> bytes:
        """The options that say for how long."""
        return b"".join(
            p.option(code, value.to_bytes(4, "big"))
            for code, value in ((p.LEASE, seconds), (p.RENEW, seconds // 2), (p.REBIND, seconds * 7 // 8))
        )


class Link(msgspec.Struct, kw_only=True, eq=False):
    """What one interface hears of."""

    local: tuple[Net, ...]
    """Subnets whose machines are on the link itself."""
    trusts_ports: bool
    """Option 82 is believed without a relay."""
    servers: frozenset[bytes]
    senders: frozenset[str]
    """Where a relay's datagrams may come from: a relay's own address, or a gateway's, where it has several."""
    _all: list[Net]
    _firsts: list[int]

    def net_of(self, address: bytes) -> Net | None:
        """The subnet that an address is in."""
        number = int.from_bytes(address, "big")
        at = bisect_right(self._firsts, number) - 1
        return self._all[at] if at >= 0 and number <= self._all[at].last else None


def links(networks: Networks, is_taken: Callable[[int], bool]) -> Mapping[str, Link]:
    """By interface."""
    nets = [_net(subnet, is_taken) for subnet in networks.subnets]
    return {name: _link([net for net in nets if net.subnet.interface == name]) for name in networks.interfaces}


def _link(nets: Iterable[Net]) -> Link:
    ordered = sorted(nets, key=lambda net: net.first)
    local = tuple(net for net in ordered if net.subnet.is_local)
    return Link(
        local=local,
        trusts_ports=any(net.subnet.trust_ports for net in local),
        servers=frozenset(net.server for net in ordered),
        senders=frozenset(
            str(address)
            for net in ordered
            for address in (*net.subnet.relayed_by, net.subnet.gateway)
            if address is not None
        ),
        _all=ordered,
        _firsts=[net.first for net in ordered],
    )


def _net(subnet: Subnet, is_taken: Callable[[int], bool]) -> Net:
    return Net(
        subnet=subnet,
        first=int(subnet.network.network_address),
        last=int(subnet.network.broadcast_address),
        server=subnet.server.packed,
        server_text=str(subnet.server),
        id_option=p.option(p.SERVER_ID, subnet.server.packed),
        options=b"".join(
            (
                p.option(p.MASK, subnet.network.netmask.packed),
                p.option(p.ROUTER, subnet.gateway.packed if subnet.gateway else b""),
                p.option(p.DNS, b"".join(server.packed for server in subnet.dns)),
                p.option(p.DOMAIN, subnet.domain.encode()),
            )
        ),
        relays=frozenset(relay.packed for relay in subnet.relayed_by),
        guests=Guests(subnet, is_taken),
    )
