"""Machines that ask: requests as they come from the wire, and replies as a machine reads them."""

from __future__ import annotations

import socket
from typing import NamedTuple

from strata.core.node import Interface, Node
from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.responder import Reply

RELAY = "10.78.0.1"
"""A relay of the second network."""
IPXE = {p.USER_CLASS: b"iPXE", p.IPXE: b"\xb1\x05\x01\x1a\xf4\x10\x00"}
NETWORKS = """
unknown: {unknown}
subnets:
  - network: 10.77.0.0/24
    interface: br0
    server: 10.77.0.1
    gateway: 10.77.0.254
    dns: [10.77.0.1, 10.77.0.2]
    domain: cluster.example
    range: 10.77.0.10-10.77.0.249
    discovery: 10.77.0.200-10.77.0.207
  - {{network: 10.78.0.0/16, interface: br0, server: 10.77.0.1, relays: [10.78.0.1, 10.77.0.250]}}
  - {{network: 10.79.0.0/24, interface: br1, server: 10.79.0.1, trust_ports: true}}
"""


def mac(number: int) -> str:
    """The MAC of a machine."""
    return f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"


def node(number: int, *interfaces: Interface) -> Node:
    """A node with one interface on the first network, unless told otherwise."""
    own = interfaces or (Interface(mac=mac(number), address=f"10.77.0.{number}"),)
    return Node(name=f"n{number:04}", uid=number, interfaces=own)


def request(
    kind: int,
    who: str,
    options: dict[int, bytes] | None = None,
    *,
    own: str = "0.0.0.0",
    relay: str = "0.0.0.0",
    xid: bytes = b"\x01\x02\x03\x04",
) -> bytes:
    """A request as it comes from the wire."""
    head = b"\x01\x01\x06\x00" + xid + b"\x00\x00\x80\x00"
    addresses = socket.inet_aton(own) + bytes(8) + socket.inet_aton(relay)
    body = p.option(p.KIND, bytes((kind,))) + b"".join(p.option(*one) for one in (options or {}).items())
    hardware = bytes.fromhex(who.replace(":", "")).ljust(16, b"\x00")
    return head + addresses + hardware + bytes(192) + p.MAGIC + body + b"\xff"


def cable(remote: bytes, circuit: bytes) -> bytes:
    """What a relay says about where a machine is: the value of option 82."""
    return p.option(2, remote) + p.option(1, circuit)


class Seen(NamedTuple):
    """A reply as a machine reads it."""

    kind: int
    address: str
    next_server: str
    file: str
    options: dict[int, bytes]
    to: tuple[str, int]


def read(reply: Reply | None) -> Seen:
    """Read a reply."""
    assert reply is not None
    payload = reply.payload
    assert payload[:4] == b"\x02\x01\x06\x00"
    assert payload[236:240] == p.MAGIC
    options: dict[int, bytes] = {}
    at = 240
    while payload[at] != 255:
        end = at + 2 + payload[at + 1]
        options[payload[at]] = payload[at + 2 : end]
        at = end
    return Seen(
        kind=options[p.KIND][0],
        address=socket.inet_ntoa(payload[16:20]),
        next_server=socket.inet_ntoa(payload[20:24]),
        file=payload[108:236].rstrip(b"\x00").decode(),
        options=options,
        to=reply.to,
    )
