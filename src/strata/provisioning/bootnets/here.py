"""Which of the declared networks this machine is on, and by which interface and address. Pure but for one look at the
machine's own addresses."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from strata.core.errors import BadRequest
from strata.provisioning.bootnets.records import NetworkEntry
from strata.provisioning.networks import Networks, Prefix, Subnet, checked, convert

_SIOCGIFCONF = 0x8912
_ROOM = 256 * 1024
_NAME, _ENTRY = 16, 40
"""Bytes of ``struct ifreq``: the interface's name, and the whole of it on 64-bit machines."""

Own = tuple[str, IPv4Address]
"""An interface, and an address that it has."""


class Here(NamedTuple):
    """What is served here."""

    subnets: tuple[Subnet, ...]
    ipv6: tuple[Prefix, ...]
    names: Mapping[str, Subnet]
    """By the network's name."""
    unserved: Mapping[str, str]
    """The others → why."""


def own_addresses() -> list[Own]:
    """The IPv4 addresses of this machine, by interface."""
    buffer = array.array("B", bytes(_ROOM))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iL", _ROOM, buffer.buffer_info()[0])
        (size,) = struct.unpack("iL", fcntl.ioctl(probe, _SIOCGIFCONF, asked))[:1]
    told = buffer.tobytes()[:size]
    found = []
    for at in range(0, len(told), _ENTRY):
        label = told[at : at + _NAME].partition(b"\0")[0].decode(errors="replace")
        found.append((label.partition(":")[0], IPv4Address(told[at + _NAME + 4 : at + _NAME + 8])))
    return found


def require_sound(entries: Mapping[str, NetworkEntry], where: str = "network") -> None:
    """Raise ``BadRequest`` unless these networks can be served side by side, by whoever is on them."""
    networks = {name: _network(entry, f"{where} {name}") for name, entry in entries.items()}
    for name, entry in entries.items():
        if entry.via and (entry.via == name or entry.via not in entries or entries[entry.via].via):
            raise BadRequest(
                f"{entry.via} is no network that we can be in ourselves",
                where=f"{where} {name}: via",
                hint="name one that has no via of its own",
            )
    subnets = []
    for name, entry in entries.items():
        taken = {str(relay) for relay in entry.relays}
        home = networks[entry.via or name]
        standing_in = next(one for one in reversed(list(_last_of(home))) if str(one) not in taken)
        subnet, _ = _served(entry, "eth0", standing_in, f"{where} {name}")
        subnets.append((name, subnet))
    for at, (name, subnet) in enumerate(subnets):
        checked(Networks(subnets=(subnet,)), f"{where} {name}")
        for other, before in subnets[:at]:
            if before.network.overlaps(subnet.network):
                raise BadRequest(
                    f"{subnet.network} overlaps {before.network} of network {other}", where=f"{where} {name}: network"
                )


def here(entries: Mapping[str, NetworkEntry], own: Sequence[Own], file: Sequence[Subnet]) -> Here:
    """What a machine with these addresses serves: what its file says, and what else is declared and it is on."""
    subnets, ipv6, names, unserved = list(file), list[Prefix](), dict[str, Subnet](), dict[str, str]()
    for name, entry in sorted(entries.items()):
        network = _network(entry, name)
        same = next((one for one in file if one.network.overlaps(network)), None)
        if same is not None:
            names[name] = same
            continue
        home = _network(entries[entry.via], entry.via) if entry.via in entries else network
        found = sorted((address, interface) for interface, address in own if address in home)
        if not found:
            unserved[name] = f"this controller has no address in {home}"
            continue
        subnet, prefix = _served(entry, found[0][1], found[0][0], f"network {name}")
        subnets.append(subnet)
        names[name] = subnet
        ipv6 += [prefix] if prefix is not None else []
    return Here(tuple(subnets), tuple(ipv6), names, unserved)


def _network(entry: NetworkEntry, where: str) -> IPv4Network:
    subnet: Subnet = convert({"network": entry.network, "interface": "eth0", "server": "0.0.0.0"}, Subnet, where)
    return subnet.network


def _last_of(network: IPv4Network) -> list[IPv4Address]:
    last = int(network.broadcast_address)
    return [IPv4Address(number) for number in range(max(int(network.network_address) + 1, last - 300), last)]


def _served(entry: NetworkEntry, interface: str, server: IPv4Address, where: str) -> tuple[Subnet, Prefix | None]:
    said = {"interface": interface, "server": server}
    said |= {name: getattr(entry, name) for name in Subnet.__struct_fields__ if name not in said}
    subnet: Subnet = convert({name: value for name, value in said.items() if value != ""}, Subnet, where)
    if not entry.prefix:
        return subnet, None
    domains = [entry.domain] if entry.domain else []
    given = {"prefix": entry.prefix, "interface": interface, "dns": list(entry.prefix_dns), "domains": domains}
    prefix: Prefix = convert(given, Prefix, where)
    checked(Networks(ipv6=(prefix,)), where)
    return subnet, prefix
