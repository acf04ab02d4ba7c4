"""What to answer to a DHCP request: decided from the nodes as they are described, with no leases kept.

A machine is told by where it is cabled (option 82, where a relay or a trusted switch writes it), else by its MAC.
The place wins: a new machine in an old place is the old node. Anybody can say that it is a relay: only those that the
networks declare are answered, at the address that is declared. Opens no socket and reads no clock.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from strata.core.node import Interface, Node
from strata.fleet.alarm import Alarm, AlarmSink
from strata.provisioning.dhcp import guests
from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.boot_files import Boot, boot_answer, boot_of, file_for
from strata.provisioning.dhcp.links import Link, Net, links
from strata.provisioning.dhcp.quiet import Quiet
from strata.provisioning.directory import Directory
from strata.provisioning.networks import Networks

log = logging.getLogger(__name__)

BROADCAST = ("255.255.255.255", 68)
_NOBODY = "0.0.0.0"
"""The address of a machine that has none."""
_SMALLEST = 300
"""Shorter replies are filled up: some old clients and relays drop them."""
_LONGEST_ID = 64
MOST_KEPT = 32_768
"""Machines whose replies are kept ready. Making one anew takes microseconds; keeping it takes memory."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that DHCP learnt about a machine. Its words are the machine's own: never trusted."""

    kind: Literal["leased", "released", "declined"]
    mac: str
    address: str
    interface: str
    node: str = ""
    """Which node it is; empty: none."""
    port: str = ""
    """Where it is cabled, if somebody told."""
    vendor_class: str = ""
    hostname: str = ""


class Reply(msgspec.Struct, gc=False):
    """A datagram to send."""

    payload: bytes
    to: tuple[str, int]
    source: bytes
    """Our address on that subnet."""


class Counts(msgspec.Struct):
    """How many requests there were."""

    answered: int = 0
    ignored: int = 0
    """Well-formed, and not for us: unknown machines, other servers' clients."""
    undeclared: int = 0
    """Of those ignored: what came as from a relay that no network declares."""
    malformed: int = 0


class _Lease(msgspec.Struct, eq=False):
    """What one machine gets."""

    node: Node | None
    net: Net
    address: bytes
    mac: str
    by_port: bool = False
    parts: dict[tuple[Boot, int], tuple[bytes, bytes]] = msgspec.field(default_factory=dict)
    """The fixed parts of its replies: sname and file, options after the kind."""


class Responder:
    """Answers for one set of networks."""

    def __init__(
        self,
        networks: Networks,
        directory: Directory,
        *,
        heard: Callable[[Heard], None] = lambda _: None,
        alarm: AlarmSink = lambda _: None,
        lacking: Iterable[str] = (),
        counts: Counts | None = None,
    ) -> None:
        """``lacking``: iPXE binaries that there are not: who needs one gets an address, and no file to ask for in
        vain."""
        self._networks = networks
        self._directory = directory
        self._heard = heard
        self._alarm = alarm
        self._links = links(networks, lambda number: directory.is_taken(_text(number.to_bytes(4, "big"))))
        self._leases: dict[tuple[str, int], _Lease] = {}
        self._quiet = Quiet()
        self._lacking = dict.fromkeys(lacking, False)
        """Whether it was told."""
        self.counts = counts or Counts()

    def answer(self, packet: bytes, interface: str, now: float, source: str = _NOBODY) -> Reply | None:
        """The reply to a datagram that came in on ``interface`` at ``now`` (monotonic seconds), if it gets one.
        ``source``: the address that it came from; a relay has one."""
        request = p.parse(packet)
        if request is None:
            self.counts.malformed += 1
            return None
        reply = self._answer(request, interface, self._links[interface], now, source)
        if reply is None:
            self.counts.ignored += 1
        else:
            self.counts.answered += 1
        return reply

    def _answer(self, request: p.Request, interface: str, link: Link, now: float, source: str) -> Reply | None:
        mac = request.mac
        place = p.place(request.options[p.RELAY]) if p.RELAY in request.options else p.NOWHERE
        if request.relay != p.NONE:
            net = link.net_of(place.link if place.link != p.NONE else request.relay)
            if net is None or request.relay not in net.relays or source not in link.senders:
                self._undeclared(request, interface, net, now, source)
                return None
            nets: tuple[Net, ...] = (net,)
            port = place.port
        else:
            nets = link.local
            port = place.port if link.trusts_ports else ""
        if not nets:
            return None
        lease = self._lease(mac, port, nets, now)
        if lease is None:
            return None
        kind = request.kind
        if kind == p.DISCOVER:
            return self._reply(request, p.OFFER, lease, lease.address)
        if kind == p.INFORM:
            return self._reply(request, p.ACK, lease, p.NONE) if request.own == lease.address else None
        server = request.options.get(p.SERVER_ID)
        if server is not None and server not in link.servers:
            return None
        if kind == p.REQUEST:
            wanted = request.own if request.own != p.NONE else request.requested
            if wanted != lease.address:
                return _assemble(request, p.NAK, lease.net, p.NONE, bytes(128), lease.net.id_option)
            if lease.node is None:
                lease.net.guests.take(mac, int.from_bytes(lease.address, "big"), now)
            self._tell("leased", request, lease, interface, port)
            return self._reply(request, p.ACK, lease, lease.address)
        if kind == p.RELEASE and request.own == lease.address:
            if lease.node is None:
                lease.net.guests.give_back(mac)
            self._tell("released", request, lease, interface, port)
        elif kind == p.DECLINE and request.requested == lease.address:
            if self._quiet.allows(f"declined {mac}", now):
                log.warning(
                    "a machine found its address in use by another",
                    extra={"mac": mac, "address": _text(lease.address), "node": lease.node.name if lease.node else ""},
                )
            self._tell("declined", request, lease, interface, port)
        return None

    def _undeclared(self, request: p.Request, interface: str, net: Net | None, now: float, source: str) -> None:
        """Somebody says that it is a relay, and is none that we know."""
        self.counts.undeclared += 1
        relay = _text(request.relay)
        if not self._quiet.allows(f"relay {relay} {source}", now):
            return
        declared = net is not None and request.relay in net.relays
        network = str(net.subnet.network) if net is not None else ""
        what = f"relay {relay} sends from {source}, which" if declared else f"relay {relay}"
        log.warning(
            "a DHCP relay that no network declares asks for addresses",
            extra={
                "relay": relay,
                "source": source,
                "interface": interface,
                "network": network,
                "hint": "if it is one of yours, add it to the relays of its network",
            },
        )
        self._alarm(
            Alarm(
                kind="rogue-relay",
                severity="warning",
                message=f"{what} asks for addresses on {interface}, and no network declares it",
                peer=source,
            )
        )

    def _lease(self, mac: str, port: str, nets: tuple[Net, ...], now: float) -> _Lease | None:
        node = self._directory.by_port(port) if port else None
        by_port = node is not None
        if node is None:
            node = self._directory.by_mac(mac)
        if node is None:
            return self._guest(mac, nets, now)
        key = (port if by_port else mac, nets[0].first)
        known = self._leases.get(key)
        if known is not None and known.node is node and known.mac == mac:
            return known
        found = _interface(node, mac, port, nets)
        if found is None:
            if self._quiet.allows(f"address {node.name}", now):
                log.warning(
                    "a node asks where it has no address",
                    extra={"node": node.name, "mac": mac, "network": str(nets[0].subnet.network)},
                )
            return None
        net, interface = found
        lease = _Lease(node, net, socket.inet_aton(interface.address), mac, by_port and interface.mac != mac)
        if len(self._leases) >= MOST_KEPT:
            self._leases.clear()
        self._leases[key] = lease
        return lease

    def _guest(self, mac: str, nets: tuple[Net, ...], now: float) -> _Lease | None:
        if self._networks.unknown == "ignore":
            if self._quiet.allows(mac, now):
                network = str(nets[0].subnet.network)
                log.warning("a machine that is no node asks for an address", extra={"mac": mac, "network": network})
                self._alarm(
                    Alarm(
                        kind="rogue-machine",
                        severity="warning",
                        message=f"a machine that is no node asks for an address on {network}",
                        peer=mac,
                    )
                )
            return None
        net = nets[0]
        number = net.guests.address_for(mac, now)
        if number is None:
            if self._quiet.allows(f"full {net.first}", now):
                log.warning("no address is left for discovery", extra={"network": str(net.subnet.network)})
            return None
        return _Lease(None, net, number.to_bytes(4, "big"), mac)

    def _parts(self, lease: _Lease, boot: Boot, inform: bool) -> tuple[bytes, bytes]:
        net, node = lease.net, lease.node
        name = node.name if node is not None and lease.by_port else ""
        if (needed := file_for(boot)) in self._lacking:
            self._tell_lacking(needed, lease)
            boot = Boot.SYSTEM
        file, options = boot_answer(boot, net.server_text, self._networks.boot_port, lease.mac, name)
        seconds = net.subnet.lease if node is not None else guests.LEASE
        tail = (
            net.id_option,
            b"" if inform else net.lease(seconds),
            net.options,
            p.option(p.HOST_NAME, node.name.encode()) if node is not None else b"",
            options,
        )
        return file.ljust(128, b"\x00"), b"".join(tail)

    def _tell_lacking(self, file: str, lease: _Lease) -> None:
        """Once: every machine of that kind asks."""
        if not self._lacking[file]:
            self._lacking[file] = True
            log.error(
                "a machine cannot boot: there is no iPXE for it",
                extra={
                    "file": file,
                    "mac": lease.mac,
                    "node": lease.node.name if lease.node is not None else "",
                    "hint": f"put {file} into the folder ipxe of the state directory, and start the service anew",
                },
            )

    def _reply(self, request: p.Request, kind: int, lease: _Lease, address: bytes) -> Reply:
        boot = boot_of(request)
        inform = address == p.NONE
        parts = lease.parts.get((boot, inform))
        if parts is None:
            parts = lease.parts[boot, inform] = self._parts(lease, boot, inform)
        file, options = parts
        return _assemble(request, kind, lease.net, address, file, options)

    def _tell(
        self,
        kind: Literal["leased", "released", "declined"],
        request: p.Request,
        lease: _Lease,
        interface: str,
        port: str,
    ) -> None:
        self._heard(
            Heard(
                kind=kind,
                mac=lease.mac,
                address=_text(lease.address),
                interface=interface,
                node=lease.node.name if lease.node is not None else "",
                port=port,
                vendor_class=request.text(p.VENDOR_CLASS),
                hostname=request.text(p.HOST_NAME),
            )
        )


def _assemble(request: p.Request, kind: int, net: Net, address: bytes, file: bytes, options: bytes) -> Reply:
    packet, own, relay = request.packet, request.own, request.relay
    refused = kind == p.NAK
    # A relay must broadcast a refusal: whoever is refused has no address that it could be reached at.
    flags = b"\x80\x00" if refused else packet[10:12]
    client_id, place = request.options.get(p.CLIENT_ID), request.options.get(p.RELAY)
    payload = b"".join(
        (
            b"\x02\x01\x06\x00",
            packet[4:8],
            b"\x00\x00",
            flags,
            p.NONE if refused else own,
            address,
            p.NONE if refused else net.server,
            relay,
            packet[28:44],
            _NO_NAME,
            file,
            _KINDS[kind],
            options,
            p.option(p.CLIENT_ID, client_id) if client_id and len(client_id) <= _LONGEST_ID else b"",
            p.option(p.RELAY, place) if place else b"",
            b"\xff",
        )
    ).ljust(_SMALLEST, b"\x00")
    if relay != p.NONE:
        to = (_text(relay), 67)
    elif own != p.NONE and not refused:
        to = (_text(own), 68)
    else:
        to = BROADCAST
    return Reply(payload, to, net.server)


_NO_NAME = bytes(64)
_KINDS = {kind: p.MAGIC + bytes((p.KIND, 1, kind)) for kind in (p.OFFER, p.ACK, p.NAK)}


def _interface(node: Node, mac: str, port: str, nets: tuple[Net, ...]) -> tuple[Net, Interface] | None:
    """The interface of the node that asks, with an address in one of the subnets."""
    for interface in node.interfaces:
        if not interface.address or not ((port and interface.port == port) or interface.mac == mac):
            continue
        number = int.from_bytes(socket.inet_aton(interface.address), "big")
        for net in nets:
            if net.first <= number <= net.last:
                return net, interface
    return None


def _text(address: bytes) -> str:
    return socket.inet_ntoa(address)
