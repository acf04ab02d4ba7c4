"""What the simulated BMCs of one process share: the nodes, the plant around them, the time, the way out."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish import parts
from strata.virtual.redfish.body import Json


class Site:
    """One simulated machine room."""

    def __init__(self, nodes: SimNodes) -> None:
        self.nodes = nodes
        self.attended: set[int] = set()
        """Nodes of which somebody wants to hear at once when they change."""
        self.send: Callable[[str, bytes, str], None] = lambda _destination, _body, _name: None
        """Brings a message (to a URL, as the BMC of that name) out of the simulator; set by the server."""
        self.swaps: dict[tuple[int, str], int] = {}
        """(BMC's key, part) → how often the part was replaced."""
        self.macs: dict[tuple[int, str], str] = {}
        """(node, port) → a MAC address other than the one that the port was made with."""
        self._begun = time.time()

    def part(self, key: int, kind: str, where: str) -> Json:
        """Maker, model and numbers of the part at ``where`` in what the BMC with this key controls."""
        made = parts.make(kind, key)
        return {
            "Manufacturer": made.vendor,
            "Model": made.model,
            "PartNumber": made.number,
            "SerialNumber": parts.serial(self.nodes.seed, key, where, self.swaps.get((key, where), 0)),
        }

    def mac(self, node: int, port: str) -> str:
        """The MAC address of a node's port (``NIC1/1``)."""
        adapter = f"NetworkAdapters/{port.partition('/')[0]}"
        found = self.macs.get((node, port))
        return found or parts.mac(self.nodes.seed, node, port, self.swaps.get((node, adapter), 0))

    def date(self, now: float) -> str:
        """The model's time as a date. Its second 0 is when it was made."""
        return datetime.fromtimestamp(self._begun + now, UTC).isoformat(timespec="milliseconds")
