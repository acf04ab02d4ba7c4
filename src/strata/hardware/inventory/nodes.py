"""Which node has which BMC, from the registry's descriptions."""

from __future__ import annotations

from typing import NamedTuple

from strata.fleet.registry.registry import Registry
from strata.hardware.discovery.sources import bmc_of
from strata.hardware.inventory.records import Known, Machine

SERIAL = "serial"
"""The label that holds a machine's serial."""


class _Index(NamedTuple):
    """Indices of nodes; -1 where several are meant."""

    exact: dict[str, int]
    base: dict[str, int]
    serial: dict[str, int]


class NodesByBmc:
    """Nodes by the address of their BMC; built again when a description has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._found = registry.kept(self._index)

    def at(self, address: str) -> str:
        """The name of the node whose BMC (or system in it) is at an address; empty: there is none, or it is
        not clear which one is meant."""
        index = self.index(address)
        return self._registry.names[index] if index >= 0 else ""

    def index(self, address: str) -> int:
        """Its index, or -1."""
        found, address = self._found(), address.rstrip("/")
        return found.exact.get(address, found.base.get(address, -1))

    def of_machine(self, known: Known, machine: Machine) -> str:
        """The name of the node that is this machine."""
        name = self.at(machine.address)
        return name or (self.at(machine.address + machine.id) if len(known.machines) == 1 else "")

    def of(self, known: Known) -> tuple[str, ...]:
        """The names of all nodes behind a BMC."""
        if not known.machines:
            name = self.at(known.address)
            return (name,) if name else ()
        return tuple(filter(None, (self.of_machine(known, machine) for machine in known.machines)))

    def with_serial(self, serial: str) -> str:
        """The name of the one node that is labelled with a serial; empty: there is none, or several."""
        index = self._found().serial.get(serial, -1) if serial else -1
        return self._registry.names[index] if index >= 0 else ""

    def _index(self) -> _Index:
        found = _Index({}, {}, {})
        for index, node in enumerate(self._registry.nodes):
            if node is None:
                continue
            if serial := node.labels.get(SERIAL):
                found.serial[serial] = index if serial not in found.serial else -1
            if node.bmc:
                base, system = bmc_of(node.bmc)
                found.exact[node.bmc.rstrip("/") if system else base.removesuffix("/redfish/v1")] = index
                if system:
                    found.base[base] = index if base not in found.base else -1
        return found
