"""The BMCs of the simulated network: of one switch, and of the whole fabric."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strata.virtual.plant.bmc import COMMON_DEEDS, COMMON_SERVICES, COMMON_VIEWS, PlantBmc, plant_key
from strata.virtual.plant.network import FABRIC_MANAGER, Far, port_name, switch_mac
from strata.virtual.redfish import services as tree_services
from strata.virtual.redfish.body import OK, ROOT, Json, collection, link, links, resource
from strata.virtual.redfish.router import Call, Router, Views

_SWITCHES = f"{ROOT}/Fabrics/HSN/Switches"


class SwitchBmc(PlantBmc):
    """A switch of the fabric, whose ports hear who is at the other end; or the manager of all switches."""

    services = (*COMMON_SERVICES, "Fabrics")
    kind = "Switch"

    @property
    def switches(self) -> Collection[str]:
        """Those that it presents."""
        return self.plant.network.names if self.name == FABRIC_MANAGER else (self.name,)

    def ports(self, switch: str) -> Mapping[int, Far]:
        """The ports of one of them."""
        return self.plant.network.ports(switch)

    def switch_part(self, switch: str) -> Json:
        """Maker, model and numbers of one of them, whoever is asked."""
        return self.site.part(plant_key(switch), "Switch", "Switch")


def _fabrics(bmc: SwitchBmc, call: Call) -> Json:
    return collection(call.path, "Fabric", ["HSN"])


def _fabric(bmc: SwitchBmc, call: Call) -> Json:
    path = f"{call.path}/Switches"
    return resource(call.path, "Fabric.v1_3_0", "HSN", FabricType="Ethernet", Status=OK, Switches=link(path))


def _switches(bmc: SwitchBmc, call: Call) -> Json:
    return collection(call.path, "Switch", bmc.switches)


def _switch(bmc: SwitchBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in bmc.switches:
        return None
    return resource(
        call.path,
        "Switch.v1_9_0",
        name,
        **bmc.switch_part(name),
        SwitchType="Ethernet",
        FirmwareVersion=bmc.firmware(call.now),
        PowerState="On",
        Status=OK,
        Ports=link(f"{call.path}/Ports"),
        Links={"ManagedBy": links(tree_services.MANAGER)},
    )


def _ports(bmc: SwitchBmc, call: Call) -> Json | None:
    name = call.ids[0]
    return collection(call.path, "Port", map(port_name, bmc.ports(name))) if name in bmc.switches else None


def _port(bmc: SwitchBmc, call: Call) -> Json | None:
    name, number = call.ids
    wanted = int(number) if number.isdecimal() and len(number) < 9 else 0
    far = bmc.ports(name).get(wanted) if name in bmc.switches else None
    if far is None or number != port_name(wanted):
        return None
    related: Json = {}
    if far.switch in bmc.switches:
        other = f"{_SWITCHES}/{far.switch}"
        related["ConnectedSwitches"] = links(other)
        related["ConnectedSwitchPorts"] = links(f"{other}/Ports/{port_name(far.port)}")
    return resource(
        call.path,
        "Port.v1_11_0",
        f"Port {number}",
        PortId=number,
        PortProtocol="Ethernet",
        PortType="BidirectionalPort" if far.node >= 0 else "InterswitchPort",
        LinkStatus="LinkUp",
        LinkState="Enabled",
        CurrentSpeedGbps=200 if far.node >= 0 else 400,
        Status=OK,
        Ethernet={"LLDPEnabled": True, "LLDPReceive": _heard(bmc, far)},
        Links=related,
    )


def _heard(bmc: SwitchBmc, far: Far) -> Json:
    nodes = bmc.site.nodes
    if far.switch:
        chassis, kind, port, name = switch_mac(nodes.seed, far.switch), "IfName", port_name(far.port), far.switch
    else:
        chassis = port = bmc.site.mac(far.node, f"{far.adapter}/{far.port}")
        kind, name = "MacAddr", nodes.names[far.node]
    return {
        "ChassisId": chassis,
        "ChassisIdSubtype": "MacAddr",
        "PortId": port,
        "PortIdSubtype": kind,
        "SystemName": name,
    }


SWITCH_VIEWS: Views[SwitchBmc] = {
    "Fabrics": _fabrics,
    "Fabrics/HSN": _fabric,
    "Fabrics/HSN/Switches": _switches,
    "Fabrics/HSN/Switches/*": _switch,
    "Fabrics/HSN/Switches/*/Ports": _ports,
    "Fabrics/HSN/Switches/*/Ports/*": _port,
}

SwitchBmc.router = Router({**COMMON_VIEWS, **SWITCH_VIEWS}, COMMON_DEEDS)
