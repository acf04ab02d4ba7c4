"""The simulated network: which switches there are, and what is at the other end of each of their ports. Pure."""

from __future__ import annotations

from typing import NamedTuple

from strata.virtual.fleet.names import PER_LEAF
from strata.virtual.redfish.site import mac_address

FABRIC_MANAGER = "fm-hsn"
"""The BMC that knows all switches."""
SPINES = 2
NICS = 2
"""Ports of a node, all on its leaf switch."""
_SWITCHES = -2
"""In the place of a node's number, where a switch has none."""


class Far(NamedTuple):
    """The other end of a cable: a port (1 and up) of a node's adapter (``NIC2``) or of a switch."""

    port: int
    node: int = -1
    adapter: str = ""
    switch: str = ""


def leaf_name(leaf: int) -> str:
    """``sw-leaf1`` and up."""
    return f"sw-leaf{leaf + 1}"


def spine_name(spine: int) -> str:
    """``sw-spine1`` and up."""
    return f"sw-spine{spine + 1}"


def leaf_port(place: int, adapter: int) -> int:
    """The port of a leaf switch that the node at ``place`` has its ``adapter`` (0 and up) in."""
    return NICS * place + adapter + 1


def port_name(port: int) -> str:
    """``01`` and up: Redfish wants the name that LLDP gives to be pairs of hexadecimal digits."""
    return f"{port:02}"


def switch_mac(seed: int, name: str) -> str:
    """The MAC address that a switch is known by."""
    return mac_address(seed, _SWITCHES, name)


def lldp(chassis: str, kind: str, port: str, name: str) -> dict[str, object]:
    """What a port hears of the one at the other end of its cable (LLDPReceive)."""
    chassis_of = {"ChassisId": chassis, "ChassisIdSubtype": "MacAddr"}
    return {**chassis_of, "PortId": port, "PortIdSubtype": kind, "SystemName": name}


class Network:
    """Leaves with a full row of nodes each, and spines that every leaf is cabled to."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.leaves = -(-nodes // PER_LEAF)
        self.names = [leaf_name(i) for i in range(self.leaves)]
        self.names += [spine_name(i) for i in range(SPINES)] if self.leaves > 1 else []

    def ports(self, switch: str) -> dict[int, Far]:
        """Port → what is at its other end, for every port with a cable."""
        up = leaf_port(PER_LEAF, 0)
        if switch.startswith("sw-spine"):
            spine = int(switch.removeprefix("sw-spine")) - 1
            return {leaf + 1: Far(up + spine, switch=leaf_name(leaf)) for leaf in range(self.leaves)}
        leaf = int(switch.removeprefix("sw-leaf")) - 1
        first, last = leaf * PER_LEAF, min((leaf + 1) * PER_LEAF, self._nodes)
        found = {
            leaf_port(node - first, adapter): Far(1, node=node, adapter=f"NIC{adapter + 1}")
            for node in range(first, last)
            for adapter in range(NICS)
        }
        if self.leaves > 1:
            found |= {up + spine: Far(leaf + 1, switch=spine_name(spine)) for spine in range(SPINES)}
        return found
