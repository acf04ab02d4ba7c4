"""The network ports of nodes as people describe them: checked, and in one form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

import msgspec

from strata.core.errors import BadRequest
from strata.core.node import Interface, Node
from strata.fleet.nodes.records import InterfaceSpec

MOST = 16
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_LONGEST_NAME = 63
_LONGEST_PORT = 255


DescribedInterface = InterfaceSpec | Interface


def is_mac(text: str) -> bool:
    """Whether ``text`` is one machine's MAC, in lower case with colons."""
    return bool(_MAC.match(text)) and not int(text[:2], 16) & 1 and text != "00:00:00:00:00:00"


def checked_interfaces(given: Sequence[DescribedInterface], where: str) -> tuple[Interface, ...]:
    """The interfaces in their one form; ``BadRequest`` says which is wrong, and how."""
    if len(given) > MOST:
        raise BadRequest(f"{len(given)} interfaces; at most {MOST}", where=where)
    found = tuple(_checked(interface, f"{where}: interface {at}") for at, interface in enumerate(given, 1))
    for what in ("address", "name"):
        values = [value for interface in found if (value := getattr(interface, what))]
        if len(set(values)) < len(values):
            raise BadRequest(f"two interfaces have the same {what}", where=where)
    return found


def _checked(given: DescribedInterface, where: str) -> Interface:
    mac = given.mac.lower().replace("-", ":")
    if mac and not is_mac(mac):
        raise BadRequest(f"a MAC is written as 52:54:00:12:34:56; found {given.mac[:40]!r}", where=where)
    if given.address:
        try:
            IPv4Address(given.address)
        except ValueError:
            raise BadRequest(f"{given.address[:40]!r} is no IPv4 address", where=where) from None
    port = given.port
    if port and (len(port) > _LONGEST_PORT or not port.isprintable() or " " in port or "/" not in port):
        raise BadRequest(
            f"a port is remote-id/circuit-id without spaces, at most {_LONGEST_PORT} characters", where=where
        )
    if len(given.name) > _LONGEST_NAME or not given.name.isprintable():
        raise BadRequest(f"a name is at most {_LONGEST_NAME} printable characters", where=where)
    if not mac and not port:
        raise BadRequest("an interface must have a MAC, or the port that it is cabled to", where=where)
    return Interface(mac=mac, address=given.address, name=given.name, port=port)


def claims_of(node: Node) -> Iterator[tuple[str, str]]:
    """What no other node may have: kind and value. Each once: one MAC can have addresses in several subnets."""
    seen: set[str] = set()
    for interface in node.interfaces:
        for what, claim in (("MAC", interface.mac), ("address", interface.address), ("port", interface.port)):
            if claim and claim not in seen:
                seen.add(claim)
                yield what, claim


def with_known_addresses(now: Sequence[Interface], before: Sequence[Interface]) -> tuple[Interface, ...]:
    """A description that leaves an address out does not take it away; nor does a new card in a port with a name."""
    known = {_key(interface): interface.address for interface in before}
    given = {interface.address for interface in now}
    found = []
    for interface in now:
        address = known.pop(_key(interface), "")
        if not interface.address and address not in given:
            interface = msgspec.structs.replace(interface, address=address)
        found.append(interface)
    return tuple(found)


def _key(interface: Interface) -> tuple[str, ...]:
    return (interface.name,) if interface.name else (interface.mac, interface.port)
