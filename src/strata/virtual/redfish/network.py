"""The network ports of a simulated node, as its system and as its chassis see them, and the switch that they hear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.fleet.names import leaf_of
from strata.virtual.plant.network import leaf_name, leaf_port, port_name, switch_mac
from strata.virtual.redfish.body import OK, ROOT, Json, collection, link, links, resource
from strata.virtual.redfish.router import Call, Deeds, Views

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

SYSTEM, CHASSIS = f"{ROOT}/Systems/1", f"{ROOT}/Chassis/1"
INTERFACES = {"eth0": "NIC1/1", "hsn0": "NIC2/1"}
"""Interface → adapter and port. The first is the one that boots; both are cabled to the leaf switch."""
ADAPTERS = ("NIC1", "NIC2")


def _interfaces(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "EthernetInterface", INTERFACES)


def _interface(bmc: NodeBmc, call: Call) -> Json | None:
    port = INTERFACES.get(call.ids[0])
    if port is None:
        return None
    adapter, _, number = port.partition("/")
    mac = bmc.site.mac(bmc.node, port)
    return resource(
        call.path,
        "EthernetInterface.v1_9_0",
        call.ids[0],
        MACAddress=mac,
        PermanentMACAddress=mac,
        InterfaceEnabled=True,
        LinkStatus="LinkUp",
        SpeedMbps=200_000,
        Status=OK,
        Links={"Ports": links(f"{CHASSIS}/NetworkAdapters/{adapter}/Ports/{number}")},
    )


def _adapters(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "NetworkAdapter", ADAPTERS)


def _adapter(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in ADAPTERS:
        return None
    return resource(
        call.path,
        "NetworkAdapter.v1_10_0",
        name,
        **bmc.part("NIC", f"NetworkAdapters/{name}"),
        Status=OK,
        Ports=link(f"{call.path}/Ports"),
        Controllers=[{"FirmwarePackageVersion": bmc.updates.versions(call.now)["NIC1"]}],
    )


def _ports(bmc: NodeBmc, call: Call) -> Json | None:
    return collection(call.path, "Port", ["1"]) if call.ids[0] in ADAPTERS else None


def _port(bmc: NodeBmc, call: Call) -> Json | None:
    name, number = call.ids
    if name not in ADAPTERS or number != "1":
        return None
    leaf, place = leaf_of(bmc.node)
    heard = {
        "ChassisId": switch_mac(bmc.site.nodes.seed, leaf_name(leaf)),
        "ChassisIdSubtype": "MacAddr",
        "PortId": port_name(leaf_port(place, ADAPTERS.index(name))),
        "PortIdSubtype": "IfName",
        "SystemName": leaf_name(leaf),
    }
    mac = bmc.site.mac(bmc.node, f"{name}/1")
    return resource(
        call.path,
        "Port.v1_11_0",
        f"{name} port 1",
        PortId="1",
        PortProtocol="Ethernet",
        PortMedium="Electrical",
        LinkStatus="LinkUp",
        LinkState="Enabled",
        CurrentSpeedGbps=200,
        Status=OK,
        Ethernet={"AssociatedMACAddresses": [mac], "LLDPEnabled": True, "LLDPReceive": heard},
    )


VIEWS: Views[NodeBmc] = {
    "Systems/1/EthernetInterfaces": _interfaces,
    "Systems/1/EthernetInterfaces/*": _interface,
    "Chassis/1/NetworkAdapters": _adapters,
    "Chassis/1/NetworkAdapters/*": _adapter,
    "Chassis/1/NetworkAdapters/*/Ports": _ports,
    "Chassis/1/NetworkAdapters/*/Ports/*": _port,
}

DEEDS: Deeds[NodeBmc] = {}
