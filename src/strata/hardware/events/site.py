"""Which nodes are behind which BMC: whose event it is that a BMC tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from strata.fleet.registry.registry import Registry

ROOT = "/redfish/v1"
SYSTEMS = f"{ROOT}/Systems/"


class Site(msgspec.Struct, frozen=True):
    """One BMC, and the nodes behind it."""

    root: str
    """Its address without any system: ``https://10.0.0.7``, ``ipmi://10.0.0.8``."""
    nodes: tuple[tuple[str, str], ...]
    """(address as the node has it, name of the node)."""

    @property
    def address(self) -> str:
        """Where to ask what concerns the whole BMC."""
        return self.nodes[0][0]

    def node_of(self, path: str) -> str:
        """The node that a resource belongs to; empty where that cannot be told."""
        systems = [(address.removeprefix(self.root).rstrip("/"), node) for address, node in self.nodes]
        for system, node in systems:
            if system and (path == system or path.startswith(system + "/")):
                return node
        # The only node that we know of need not be the only one that there is.
        alone, node = systems[0]
        named = alone.startswith(SYSTEMS) and path.startswith(SYSTEMS)
        return node if len(systems) == 1 and not named else ""

    def node_itself(self, path: str) -> str:
        """The node that a resource is: not one that it is a part of. Empty where that cannot be told."""
        path = path.rstrip("/")
        for address, node in self.nodes:
            own = address.removeprefix(self.root).rstrip("/")
            if path and own == path:
                return node
        alone = len(self.nodes) == 1 and not self.nodes[0][0].removeprefix(self.root).rstrip("/")
        system = path.removeprefix(SYSTEMS)
        return self.nodes[0][1] if alone and system != path and system and "/" not in system else ""


def root_of(address: str) -> str:
    """The BMC's own address in one that names a system behind it."""
    return address.partition(ROOT)[0].rstrip("/")


def sites_of(addresses: Mapping[str, str]) -> dict[str, Site]:
    """By root. ``addresses``: of the BMC, as nodes have it → the node's name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for address, node in addresses.items():
        found.setdefault(root_of(address), []).append((address, node))
    return {root: Site(root, tuple(nodes)) for root, nodes in found.items()}


def bmc_addresses(registry: Registry) -> Callable[[], Mapping[str, str]]:
    """BMCs as nodes have them → names of the nodes; the same object while no node changed."""
    return registry.kept(lambda: {node.bmc: node.name for node in registry.nodes if node is not None and node.bmc})
