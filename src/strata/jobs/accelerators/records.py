"""What the detector finds in a machine, and what nodes told of theirs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strata.core.texts import Out

_VENDORS = {"nvidia": "nvidia.com", "amd": "amd.com", "intel": "intel.com"}


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library of a driver: what programs look for, and the file of the driver that runs."""

    name: str
    path: str


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with every device of a make."""

    driver: str = ""
    devices: tuple[str, ...] = ()
    libraries: tuple[Library, ...] = ()
    programs: tuple[str, ...] = ()
    variable: str = ""
    """The variable by which programs are told which they may use, where a rule names one."""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of a machine."""

    address: str
    make: str = ""
    kind: str = "accelerator"
    index: int = 0
    """Among those of its make, as their driver counts."""
    name: str = ""
    id: str = ""
    memory_bytes: int = 0
    numa: int | None = None
    devices: tuple[str, ...] = ()

    @property
    def cdi(self) -> str:
        """Its name in the Container Device Interface: ``nvidia.com/gpu=0``."""
        return f"{cdi_kind(self.make, self.kind)}={self.index}"


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port of an adapter."""

    port: int
    state: str = ""
    gbit_s: int = 0
    layer: str = ""


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter of a fast network."""

    kind: str
    name: str
    address: str = ""
    model: str = ""
    firmware: str = ""
    guid: str = ""
    devices: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()

    @property
    def cdi(self) -> str:
        """Its name in the Container Device Interface: ``infiniband/hca=mlx5_0``."""
        return f"{cdi_kind(self.kind, 'hca')}={self.name}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """All that the detector found in a machine."""

    accelerators: tuple[Accelerator, ...] = ()
    fabric: tuple[Adapter, ...] = ()
    support: Mapping[str, Support] = {}
    problems: Mapping[str, tuple[str, ...]] = {}
    """By the address of an accelerator or the name of an adapter; only those where something is wrong."""

    @property
    def devices(self) -> tuple[Accelerator | Adapter, ...]:
        """Accelerators, then adapters."""
        return (*self.accelerators, *self.fabric)

    def wrong_with(self, one: Accelerator | Adapter) -> tuple[str, ...]:
        """What is wrong with one of them."""
        return self.problems.get(one.address if isinstance(one, Accelerator) else one.name, ())

    def supports(self, make: str) -> Support:
        """What goes with the devices of a make."""
        return self.support.get(make, Support())


class AcceleratorClass(Out, frozen=True, kw_only=True):
    """Nodes that have as many accelerators of one model."""

    make: str
    name: str
    memory_bytes: int
    """Of each; 0: nobody told."""
    each: int
    """How many a node has."""
    running: bool
    """Whether their driver runs: without it no job can use them."""
    nodes: str
    """Folded."""
    count: int
    """Of nodes."""


def cdi_kind(make: str, kind: str) -> str:
    """Vendor and class, as the Container Device Interface writes them."""
    return f"{_VENDORS.get(make, make or 'unknown')}/{kind}"
