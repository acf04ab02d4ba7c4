"""What discovery found: BMCs, the machines behind them, and the parts of those. Types only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from strata.core.texts import Out
from strata.hardware.bmc.protocol import Identity, Severity

ComponentKind = Literal[
    "system", "chassis", "manager", "processor", "memory", "drive", "storage", "nic", "port", "accelerator",
    "power-supply", "fan", "pcie-device", "switch", "pdu", "outlet", "battery", "other",
]  # fmt: skip


class Component(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part, as its BMC describes it."""

    id: str
    """Unique within its BMC: the path of its resource, or the IPMI FRU number."""
    kind: ComponentKind
    name: str = ""
    parent: str = ""
    """The id of what it is in; empty: the BMC itself."""
    slot: str = ""
    """Where in the parent, as printed on the sheet metal."""
    vendor: str = ""
    model: str = ""
    part: str = ""
    serial: str = ""
    firmware: str = ""
    health: Severity | None = None
    macs: tuple[str, ...] = ()
    """Lower case, with colons."""
    facts: Mapping[str, str | int | float | bool] = {}
    """What else is worth knowing, by a short name: ``cores``, ``capacity_mib``, ``speed_mhz``, ``type``."""
    shape: str = ""
    """For ``other``: what the BMC calls it (``@odata.type``), so that an unknown part is kept and named."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a port hears from the other end of its cable (LLDP)."""

    chassis: str = ""
    port: str = ""
    system: str = ""
    mac: str = ""


class Port(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of a switch or of a NIC."""

    id: str
    """The path of its resource."""
    owner: str
    """The id of the switch or NIC (a ``Component``)."""
    name: str = ""
    up: bool | None = None
    speed_gbps: float | None = None
    mac: str = ""
    neighbour: Neighbour | None = None
    connected: tuple[str, ...] = ()
    """Ids of ports or devices that the BMC itself says are at the other end."""

    def component(self) -> Component:
        """The port as a part of what it belongs to."""
        told = {"up": self.up, "speed_gbps": self.speed_gbps}
        return Component(
            id=self.id,
            kind="port",
            name=self.name,
            parent=self.owner,
            macs=(self.mac,) if self.mac else (),
            facts={name: value for name, value in told.items() if value is not None},
        )


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One computer system behind a BMC: what becomes a node."""

    id: str
    """The id of its component."""
    address: str
    """What goes into ``Node.bmc``: names the system where the BMC has several."""
    name: str = ""
    """The host name that the BMC knows, if any."""
    serial: str = ""
    uuid: str = ""
    type: str = ""
    """As the BMC calls it: ``Physical``, ``Virtual``, ``DPU``."""
    architecture: str = ""
    macs: tuple[str, ...] = ()
    power: str = ""
    """``on``, ``off`` or empty."""


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one BMC told."""

    address: str
    identity: Identity
    time: float
    machines: tuple[Machine, ...] = ()
    components: tuple[Component, ...] = ()
    ports: tuple[Port, ...] = ()
    fabric: str = ""
    """Name of the fabric that its switches are in."""
    trouble: tuple[str, ...] = ()
    """What could not be read, and why; the rest is there all the same."""


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a machine is and what it is to be called, as far as anything says so."""

    location: str = ""
    name: str = ""
    nid: int | None = None
    doubt: str = ""
    """Why there is no answer: two things say different ones."""


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is always at hand of a BMC; its parts are read when they are asked for."""

    address: str
    identity: Identity
    first: float
    """When it was first seen."""
    seen: float
    """When it was last seen."""
    digest: bytes
    """Of everything that it told; the same: nothing has changed."""
    machines: tuple[Machine, ...] = ()
    counts: Mapping[str, int] = {}
    """How many components of each kind."""
    ports: int = 0
    macs: tuple[str, ...] = ()
    """Of the BMC itself."""
    serials: bytes = b""
    """Hashes of the serials of its parts, eight bytes each."""
    trouble: tuple[str, ...] = ()
    places: Mapping[str, Place] = {}
    """By the id of the machine."""
    stranger: Identity | None = None
    """Somebody else answers at the address now. Nothing of that one is taken over until a person says so."""
    stranger_since: float = 0.0


class Parts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a BMC told of its hardware in detail."""

    components: tuple[Component, ...] = ()
    ports: tuple[Port, ...] = ()
    fabric: str = ""


ChangeKind = Literal["added", "removed", "swapped", "moved", "changed", "health", "bmc-swapped"]


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of what hardware there is."""

    time: float
    what: ChangeKind
    bmc: str
    machine: str = ""
    """The address of the machine that the part is in, where that is clear."""
    node: str = ""
    """The name that the machine's node had then."""
    component: str = ""
    kind: str = ""
    old: str = ""
    new: str = ""
    detail: str = ""


class ComponentView(Component, frozen=True, kw_only=True, omit_defaults=False):
    """One part, and where it is."""

    bmc: str
    node: str


class BmcSummary(Out, frozen=True, kw_only=True):
    """One discovered BMC."""

    address: str
    identity: Identity
    seen: float
    nodes: tuple[str, ...]
    machines: int
    components: Mapping[str, int]
    """How many of each kind."""
    trouble: tuple[str, ...]


class BmcPage(Out, frozen=True, kw_only=True):
    """Some BMCs, by address."""

    items: tuple[BmcSummary, ...]
    next: str | None
    total: int


class BmcHardware(Out, frozen=True, kw_only=True):
    """One of them, with its parts."""

    summary: BmcSummary
    components: tuple[ComponentView, ...]


class NodeHardware(Out, frozen=True, kw_only=True):
    """What a node is made of."""

    node: str
    bmc: str
    identity: Identity
    seen: float
    serial: str
    uuid: str
    components: tuple[ComponentView, ...]


class ComponentQuery(Out, frozen=True, kw_only=True):
    """Which components."""

    select: str = "*"
    kind: str = ""
    text: str = ""
    """Part of a name, model, part number or serial."""
    limit: int = 100
    after: str = ""


class ComponentPage(Out, frozen=True, kw_only=True):
    """Some components. A page may be short although there are more: go on while there is a ``next``."""

    items: tuple[ComponentView, ...]
    next: str | None


class HardwareChange(Out, frozen=True, kw_only=True):
    """One change of what hardware there is."""

    time: float
    what: ChangeKind
    bmc: str
    node: str
    component: str
    kind: str
    old: str
    """Serial (or value) before."""
    new: str
    detail: str


class HardwareConflict(Out, frozen=True, kw_only=True):
    """Two things that cannot both be true. Nothing was guessed: a person decides."""

    what: Literal["duplicate-mac", "duplicate-serial", "duplicate-uuid", "bmc-swapped", "location-taken"]
    value: str
    where: tuple[str, ...]
    since: float
    hint: str
