"""A hardware layer that behaves, in memory: every node has a controller with sensors, settings and parts.

``Ground`` is what the parts share and what tests change: who is dead, slow or braked, and what was asked of whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.core.nodeset import fold
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.service import BmcService
from strata.hardware.consoles.records import ConsoleLine
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.emergency.service import EmergencyService
from strata.hardware.events.records import EventView
from strata.hardware.fabric.records import FabricView, LinkView, SwitchView
from strata.hardware.fabric.service import FabricService
from strata.hardware.inventory.service import InventoryService
from support.fake_alerts import FakeAlerts, FakeConsoles
from support.fake_bmcs import FakeBmcs
from support.fake_ground import PDU_ADDRESS, Ground, address, job
from support.fake_inventory import FakeFabric, FakeInventory, part
from support.fake_secrets import FakeCredentials, FakeEmergency

__all__ = ["PDU_ADDRESS", "Ground", "address", "fake_machine", "furnish", "job"]


def fake_machine(facade: Any) -> tuple[dict[type[Any], Any], Ground]:
    """A hardware layer for the nodes of ``facade``: its services by type."""
    ground = Ground(facade)
    rooms: dict[type[Any], Any] = {
        BmcService: FakeBmcs(ground),
        InventoryService: FakeInventory(ground),
        AlertService: FakeAlerts(ground),
        FabricService: FakeFabric(ground),
        ConsoleService: FakeConsoles(ground),
        BmcCredentialService: FakeCredentials(ground),
        EmergencyService: FakeEmergency(ground),
    }
    return rooms, ground


def furnish(ground: Ground, nodes: Sequence[str]) -> None:
    """Cables, PDUs, events and alerts, so that every kind of resource is there."""
    switches = tuple(
        SwitchView(id=f"/redfish/v1/Fabrics/hsn/Switches/s{n}", name=f"s{n}", fabric="hsn", location="x1000c0r0",
                     model="Slingshot", ports=64, nodes=fold(nodes[n::2]))
        for n in (0, 1)
    )  # fmt: skip
    cables = [LinkView(a=f"{switches[0].id}:p63", b=f"{switches[1].id}:p63", up=True, speed_gbps=200, source="redfish")]
    cables += [
        LinkView(a=f"{switches[n % 2].id}:p{n}", b=f"{node}:hsn0", up=None, speed_gbps=None, source="lldp")
        for n, node in enumerate(nodes[:8])
    ]
    ground.graph = FabricView(switches=switches, links=tuple(cables))
    pdu = "/redfish/v1/PowerEquipment/RackPDUs/1"
    ground.pdus = (
        part("", pdu, "pdu", bmc=PDU_ADDRESS, name="PDU A", firmware="3"),
        *(
            part("", f"{pdu}/Outlets/A{n}", "outlet", bmc=PDU_ADDRESS, parent=pdu, facts={"power": "On"})
            for n in (1, 2)
        ),
    )
    ground.alert(nodes[0], "warning")
    ground.events += [
        EventView(
            id=n, time=float(n), severity="critical", message="fan\nfailed", source="push", key="sensor/Fan",
            node=nodes[0], bmc=address(nodes[0]), message_id="", fields={},
        )
        for n in (1, 2)
    ]  # fmt: skip
    ground.lines[nodes[0]] = [
        ConsoleLine(id=n, time=float(n), source="serial", text=text)
        for n, text in enumerate(("login:", "Kernel panic - not syncing"), 1)
    ]
