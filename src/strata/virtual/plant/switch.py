"""The BMCs of the simulated network: of one switch, and of the whole fabric."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from strata.virtual.plant.bmc import COMMON_SERVICES, PlantBmc, plant_key
from strata.virtual.plant.network import FABRIC_MANAGER, Far, lldp, port_name, switch_mac
from strata.virtual.redfish import events, services
from strata.virtual.redfish.body import OK, ROOT, Json, collection, link, links
from strata.virtual.redfish.router import Call, Router, Tree
from strata.virtual.redfish.services import MANAGER

_SWITCHES = f"{ROOT}/Fabrics/HSN/Switches"

TREE: Tree[SwitchBmc] = Tree()


@TREE.members("Fabrics", "Fabric.v1_3_0", ["HSN"])
def _fabric(bmc: SwitchBmc, call: Call) -> Json:
    return {"FabricType": "Ethernet", "Status": OK, "Switches": link(f"{call.path}/Switches")}


@TREE.members("Fabrics/HSN/Switches", "Switch.v1_9_0", lambda bmc, call: bmc.switches)
def _switch(bmc: SwitchBmc, call: Call) -> Json:
    return {
        # Maker, model and numbers are the same, whoever is asked.
        **bmc.site.part(plant_key(call.ids[0]), "Switch", "Switch"),
        "SwitchType": "Ethernet",
        "FirmwareVersion": bmc.firmware(call.now),
        "PowerState": "On",
        "Status": OK,
        "Ports": link(f"{call.path}/Ports"),
        "Links": {"ManagedBy": links(MANAGER)},
    }


@TREE.view("Fabrics/HSN/Switches/*/Ports")
def _port_collection(bmc: SwitchBmc, call: Call) -> Json | None:
    name = call.ids[0]
    known = name in bmc.switches
    return collection(call.path, "Port", map(port_name, bmc.plant.network.ports(name))) if known else None


@TREE.view("Fabrics/HSN/Switches/*/Ports/*", "Port.v1_11_0")
def _port(bmc: SwitchBmc, call: Call) -> Json | None:
    name, number = call.ids
    wanted = int(number) if number.isdecimal() and len(number) < 9 else 0
    far = bmc.plant.network.ports(name).get(wanted) if name in bmc.switches else None
    if far is None or number != port_name(wanted):
        return None
    related: Json = {}
    if far.switch in bmc.switches:
        other = f"{_SWITCHES}/{far.switch}"
        related["ConnectedSwitches"] = links(other)
        related["ConnectedSwitchPorts"] = links(f"{other}/Ports/{port_name(far.port)}")
    return {
        "Name": f"Port {number}",
        "PortId": number,
        "PortProtocol": "Ethernet",
        "PortType": "BidirectionalPort" if far.node >= 0 else "InterswitchPort",
        "LinkStatus": "LinkUp",
        "LinkState": "Enabled",
        "CurrentSpeedGbps": 200 if far.node >= 0 else 400,
        "Status": OK,
        "Ethernet": {"LLDPEnabled": True, "LLDPReceive": _heard(bmc, far)},
        "Links": related,
    }


def _heard(bmc: SwitchBmc, far: Far) -> Json:
    nodes = bmc.site.nodes
    if far.switch:
        return lldp(switch_mac(nodes.seed, far.switch), "IfName", port_name(far.port), far.switch)
    mac = bmc.site.mac(far.node, f"{far.adapter}/{far.port}")
    return lldp(mac, "MacAddr", mac, nodes.names[far.node])


class SwitchBmc(PlantBmc):
    """A switch of the fabric, whose ports hear who is at the other end; or the manager of all switches."""

    router: ClassVar[Router] = Router(services.TREE, events.TREE, TREE)
    services = (*COMMON_SERVICES, "Fabrics")
    kind = "Switch"

    @property
    def switches(self) -> Collection[str]:
        """Those that it presents."""
        return self.plant.network.names if self.name == FABRIC_MANAGER else (self.name,)
