"""What the simulated BMCs of one process share: the nodes, the time, the way out, and a catalogue of parts.

Makers, models and serial numbers are the same every time for a seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish.body import Json


class Make(NamedTuple):
    """One line of a maker's catalogue."""

    vendor: str
    model: str
    number: str


CATALOGUE = {
    "System": (
        Make("Contoso", "HX-2", "P100"),
        Make("Fabrikam", "Blade 420", "FB-420"),
        Make("Tailspin", "T9", "T9-R"),
    ),
    "Manager": (Make("Contoso", "cBMC 5", "P150"), Make("Fabrikam", "FMC", "FB-1"), Make("Tailspin", "TSM", "T-BMC")),
    "CPU": (Make("Intel", "Xeon Platinum 8480+", "PK8071305072902"), Make("AMD", "EPYC 9654", "100-000000789")),
    "ARM": (Make("NVIDIA", "Grace A02", "900-5G133"),),
    "GPU": (Make("NVIDIA", "H100 SXM5 96GB", "900-2G530"),),
    "DIMM": (Make("Samsung", "DDR5-4800 64GB", "M321R8GA0BB0"), Make("Micron", "DDR5-4800 64GB", "MTC40F2046S1RC48")),
    "Drive": (Make("KIOXIA", "CD8-R", "KCD81RUG1T92"), Make("Solidigm", "D7-P5520", "SSDPF2KX019T1")),
    "NIC": (Make("NVIDIA", "ConnectX-7", "MCX75310AAS"), Make("HPE", "Slingshot 200", "P43012-001")),
    "PDU": (Make("Raritan", "PX3-5000", "PX3-5665V"), Make("Vertiv", "Geist rPDU", "VP7G3001")),
    "Enclosure": (Make("Contoso", "HX chassis 32", "P300"), Make("Fabrikam", "Blade box", "FB-BOX")),
    "Switch": (Make("NVIDIA", "QM9700", "MQM9700-NS2F"), Make("HPE", "Slingshot 64", "R0Z26A")),
    "PSU": (Make("Delta", "DPS-2400", "DPS-2400AB"), Make("Murata", "D1U-3000", "D1U54P-W-3000")),
}


def make(kind: str, which: int) -> Make:
    """The line of the catalogue that the ``which``-th customer bought."""
    lines = CATALOGUE[kind]
    return lines[which % len(lines)]


def serial_number(seed: int, node: int, part: str, swaps: int = 0) -> str:
    """The serial number of a part: twelve letters and digits."""
    return _digest(seed, node, part, swaps).hex()[:12].upper()


def part_uuid(seed: int, node: int, part: str, swaps: int = 0) -> str:
    """A random-looking UUID."""
    return str(UUID(bytes=_digest(seed, node, f"{part}/uuid", swaps), version=4))


def mac_address(seed: int, node: int, part: str, swaps: int = 0) -> str:
    """A locally administered MAC address, in capitals as BMCs write it."""
    return ":".join(f"{byte:02X}" for byte in b"\x02" + _digest(seed, node, f"{part}/mac", swaps)[:5])


def _digest(seed: int, node: int, part: str, swaps: int) -> bytes:
    return blake2b(f"{seed}/{node}/{part}/{swaps}".encode(), digest_size=16).digest()


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
        made = make(kind, key)
        return {
            "Manufacturer": made.vendor,
            "Model": made.model,
            "PartNumber": made.number,
            "SerialNumber": serial_number(self.nodes.seed, key, where, self.swaps.get((key, where), 0)),
        }

    def mac(self, node: int, port: str) -> str:
        """The MAC address of a node's port (``NIC1/1``)."""
        adapter = f"NetworkAdapters/{port.partition('/')[0]}"
        found = self.macs.get((node, port))
        return found or mac_address(self.nodes.seed, node, port, self.swaps.get((node, adapter), 0))

    def date(self, now: float) -> str:
        """The model's time as a date. Its second 0 is when it was made."""
        return datetime.fromtimestamp(self._begun + now, UTC).isoformat(timespec="milliseconds")
