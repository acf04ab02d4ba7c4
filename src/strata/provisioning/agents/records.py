"""Agents as they are shown, and the machines that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strata.core.texts import PLAIN, In, LabelText, NodeNameText, Out
from strata.provisioning.agents.wire import MemberState


class AgentView(Out, frozen=True, kw_only=True):
    """A node's agent, as this controller knows it. ``attached`` false: what it last said."""

    node: str
    attached: bool = False
    contact: float | None = None
    """When it last spoke (Unix seconds); null: not since this controller runs."""
    since: float | None = None
    """When it attached."""
    generation: int = 0
    version: str
    profile: str
    uptime: float
    cpu_s: float
    set: str
    set_digest: str
    state: str
    reason: str
    members: tuple[MemberState, ...]
    loaded: tuple[str, ...]
    healthy: bool
    problems: tuple[str, ...]
    metrics: Mapping[str, Any]
    failure: str = ""
    """What went wrong with the last command that failed."""
    pending: int = 0
    """Commands that it has not answered yet."""


class InventoryView(Out, frozen=True, kw_only=True):
    """What a node said of its hardware."""

    node: str
    time: float
    inventory: Mapping[str, Any]


_Count = Annotated[int, Meta(ge=0, le=1 << 20)]


class HostCpu(msgspec.Struct, frozen=True, kw_only=True):
    """A node's processors, as its kernel counts them: all together."""

    sockets: _Count = 0
    cores: _Count = 0
    threads: _Count = 0


class HostCard(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator."""

    address: Annotated[str, Meta(max_length=32)] = ""
    vendor: Annotated[str, Meta(max_length=16)] = ""
    """Of the PCI device: ``0x10de``."""
    make: Annotated[str, Meta(max_length=32)] = ""
    """``nvidia``, ``amd``, ``intel``, or what a rule of the site calls it. Empty: nobody knows."""
    name: Annotated[str, Meta(max_length=96)] = ""
    """As its driver calls it: ``NVIDIA H200``."""
    id: Annotated[str, Meta(max_length=96)] = ""
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    devices: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=16)] = ()
    """The one by which jobs get it comes first. None: its driver does not run."""


class HostHardware(msgspec.Struct, frozen=True, kw_only=True):
    """As much of what a node said of its hardware as jobs are given."""

    cpu: HostCpu = HostCpu()
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    accelerators: Annotated[tuple[HostCard, ...], Meta(max_length=64)] = ()
    time: float = 0.0
    """When it said so (Unix seconds)."""


class UnknownMachine(Out, frozen=True, kw_only=True):
    """A machine that nobody knows, as it describes itself."""

    mac: str
    """The first of its MAC addresses: its name here."""
    macs: tuple[str, ...]
    uuid: str
    serial: str
    peer: str
    """The address that it spoke from."""
    first: float
    last: float
    inventory: Mapping[str, Any]


class AdoptMachine(In, frozen=True, kw_only=True):
    """Make a node of it."""

    name: NodeNameText
    address: Annotated[str, Meta(pattern=r"^[0-9.]{0,15}$(?!\n)", max_length=15)] = ""
    """Its address on the boot network; empty: one that is free is given."""
    location: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]*$(?!\n)", max_length=64)] = ""
    role: LabelText = "compute"
    bmc: Annotated[str, Meta(pattern=PLAIN, max_length=256)] = ""
