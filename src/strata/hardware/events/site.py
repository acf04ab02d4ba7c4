"""Which nodes are behind which controller: whose event it is that a controller tells of."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ROOT = "/redfish/v1"
SYSTEMS = f"{ROOT}/Systems/"


class Site(msgspec.Struct, frozen=True):
    """One controller, and the nodes behind it."""

    root: str
    """Its address without any system: ``https://10.0.0.7``, ``ipmi://10.0.0.8``."""
    nodes: tuple[tuple[str, str], ...]
    """(address as the node has it, name of the node)."""

    @property
    def address(self) -> str:
        """Where to ask what concerns the whole controller."""
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


def root_of(address: str) -> str:
    """The controller's own address in one that names a system behind it."""
    return address.partition(ROOT)[0].rstrip("/")


def sites_of(addresses: Mapping[str, str]) -> dict[str, Site]:
    """By root. ``addresses``: of the controller, as nodes have it → the node's name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for address, node in addresses.items():
        found.setdefault(root_of(address), []).append((address, node))
    return {root: Site(root, tuple(nodes)) for root, nodes in found.items()}
