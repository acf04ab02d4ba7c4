"""What a virtual chassis is made of, as data: its file, its names, its addresses. Starts nothing.

Everything that has to be found again after a crash is named after the chassis's id, and the id after its folder: what
was written down helps, but is not needed.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal
from uuid import UUID

import msgspec

from strata.core.errors import BadRequest, Conflict, NotFound

FILE = "chassis.json"
PASSWORD = "bmc.password"
PROCESS = "chassis.process"
LOG = "chassis.log"
NODES = "nodes"
"""Names in a chassis's folder."""

USER = "root"
PORT = 4290
"""Where the BMCs answer, on the loopback of the namespace. Its own namespace: the port is always free."""
MOST_NODES = 200
FIRST_ADDRESS = 10
"""Nodes get the server's network's addresses from the one after this on."""
LEAST_MEMORY = 128

Firmware = Literal["bios", "uefi"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants. The last ``uefi`` nodes have UEFI firmware, the others BIOS."""

    directory: Path
    nodes: int = 4
    uefi: int = 0
    memory: int = 768
    """Memory of each node, in MiB."""
    network: str = "10.77.0.0/24"
    network6: str = "fd77::/64"
    host_link: bool = True
    """Whether this machine can reach the server's end (not the nodes) by an address of its own."""


class MachineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    firmware: Firmware
    memory: int
    mac: str
    address: str
    """Free for it on the chassis's network; nobody has given it yet."""
    uuid: str
    serial: str
    tap: str
    bmc: str


class HostLink(msgspec.Struct, frozen=True, kw_only=True):
    """A cable between the namespace and this machine, with an address at each end."""

    device: str
    host: str
    inside: str


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A whole chassis."""

    id: str
    namespace: str
    bridge: str
    network: str
    network6: str
    server: str
    """The bridge's address, for whoever serves the nodes."""
    server6: str
    port: int
    user: str
    link: HostLink | None
    nodes: tuple[MachineDescription, ...]


def chassis_id(directory: Path) -> str:
    """The id of the chassis in this folder, whether or not there is one."""
    return blake2b(os.fsencode(directory.resolve()), digest_size=4).hexdigest()


def namespace_name(chassis: str) -> str:
    return f"strata-{chassis}"


def guest_mark(chassis: str, node: str = "") -> str:
    """What a QEMU process of the chassis has on its command line, as the beginning of an argument."""
    return f"guest={namespace_name(chassis)}/{node}"


def link_device(chassis: str) -> str:
    """The end of the host link on this machine."""
    return f"sv{chassis}"


def describe(options: Options) -> Description:
    """The chassis that ``options`` ask for."""
    _check(options)
    chassis = chassis_id(options.directory)
    network = IPv4Network(options.network)
    server = network[1]
    return Description(
        id=chassis,
        namespace=namespace_name(chassis),
        bridge="br0",
        network=str(network),
        network6=str(IPv6Network(options.network6)),
        server=str(server),
        server6=str(IPv6Network(options.network6)[1]),
        port=PORT,
        user=USER,
        link=_link(chassis) if options.host_link else None,
        nodes=_nodes(0, options.nodes, options.uefi, options.memory, chassis, network),
    )


def read(directory: Path) -> Description:
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Description)
    except FileNotFoundError:
        raise NotFound("no virtual chassis here", where=str(directory), hint="strata virtual create") from None
    except msgspec.DecodeError as error:
        hint = "strata virtual destroy clears up, whatever the file says"
        raise Conflict(f"not the description of a chassis: {error}", where=str(directory / FILE), hint=hint) from None


def write(directory: Path, description: Description) -> None:
    """Write it down, whole or not at all."""
    scratch = directory / f"{FILE}.new"
    scratch.write_bytes(msgspec.json.format(msgspec.json.encode(description), indent=2) + b"\n")
    scratch.replace(directory / FILE)


def extended(found: Description, nodes: int, uefi: int) -> Description:
    """The same chassis with so many nodes more, the last ``uefi`` of them with UEFI; as large as its last one."""
    there = len(found.nodes)
    if there + nodes > MOST_NODES:
        raise BadRequest(f"{there} nodes are there, and {MOST_NODES} is the most", where="nodes")
    if not 0 <= uefi <= nodes:
        raise BadRequest(f"{uefi} of {nodes} nodes cannot have UEFI firmware", where="uefi")
    network, memory = IPv4Network(found.network), found.nodes[-1].memory
    _check_addresses(network, there + nodes)
    return msgspec.structs.replace(found, nodes=(*found.nodes, *_nodes(there, nodes, uefi, memory, found.id, network)))


def _nodes(
    there: int, more: int, uefi: int, memory: int, chassis: str, network: IPv4Network
) -> tuple[MachineDescription, ...]:
    """So many more than are there, the last ``uefi`` of them with UEFI firmware."""
    last = there + more
    return tuple(
        _node(i, "uefi" if i > last - uefi else "bios", memory, chassis, network) for i in range(there + 1, last + 1)
    )


def _node(i: int, firmware: Firmware, memory: int, chassis: str, network: IPv4Network) -> MachineDescription:
    own, name = int(chassis, 16) & 0xFFFF, f"n{i:04d}"
    digest = blake2b(f"{chassis}/{name}".encode(), digest_size=16).digest()
    return MachineDescription(
        name=name,
        firmware=firmware,
        memory=memory,
        mac=f"52:54:00:{own >> 8:02x}:{own & 255:02x}:{i:02x}",
        address=str(network[FIRST_ADDRESS + i]),
        uuid=str(UUID(bytes=digest, version=4)),
        serial=f"SV{chassis.upper()}{i:04d}",
        tap=f"tap{i}",
        bmc=f"http://127.0.0.1:{PORT}/bmc/{name}",
    )


def _link(chassis: str) -> HostLink:
    """Two link-local addresses from the id: 16,000 pairs."""
    pair = 1024 + int(chassis, 16) % (65536 - 2048) // 4 * 4
    return HostLink(device=link_device(chassis), host=_local(pair + 1), inside=_local(pair + 2))


def _local(number: int) -> str:
    return f"169.254.{number >> 8}.{number & 255}"


def _check(options: Options) -> None:
    if not 1 <= options.nodes <= MOST_NODES:
        raise BadRequest(f"{options.nodes}: from 1 to {MOST_NODES} nodes", where="nodes")
    if not 0 <= options.uefi <= options.nodes:
        raise BadRequest(f"{options.uefi} of {options.nodes} nodes cannot have UEFI firmware", where="uefi")
    if options.memory < LEAST_MEMORY:
        raise BadRequest(f"{options.memory} MiB is too little: at least {LEAST_MEMORY}", where="memory")
    try:
        network = IPv4Network(options.network)
    except ValueError as error:
        raise BadRequest(f"not a network: {error}", where="network", hint="such as 10.77.0.0/24") from None
    _check_addresses(network, options.nodes)


def _check_addresses(network: IPv4Network, nodes: int) -> None:
    if network.num_addresses < FIRST_ADDRESS + nodes + 2:
        raise BadRequest(f"{network} has too few addresses for {nodes} nodes", where="network")
