"""What a simulated node is made of: processors, memory, storage, network ports, supplies, fans, firmware settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.fleet.names import leaf_of
from strata.virtual.plant.network import leaf_name, leaf_port, lldp, port_name, switch_mac
from strata.virtual.redfish.body import OK, Json, action, done, link, links, numbered, only, read_json, refuse, slot
from strata.virtual.redfish.router import Call, Tree
from strata.virtual.redfish.server import CHASSIS, SYSTEM

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

CPUS, DIMMS, DRIVES = 2, 8, 2
CORES, DIMM_MIB, DRIVE_BYTES, GPU_MIB = 96, 65536, 1_920_383_410_176, 98304
SUPPLIES, SUPPLY_WATTS, FANS = 2, 2400, 2
INTERFACES = {"eth0": "NIC1/1", "hsn0": "NIC2/1"}
"""Interface → adapter and port. The first is the one that boots; both are cabled to the leaf switch."""
ADAPTERS = ("NIC1", "NIC2")
BIOS = f"{SYSTEM}/Bios"
ATTRIBUTES = {
    "BootMode": "Uefi",
    "HyperThreading": True,
    "NumaNodesPerSocket": 4,
    "PowerProfile": "Performance",
    "SerialRedirection": True,
    "Sriov": False,
}
"""Firmware setting → what servers come with."""

TREE: Tree[NodeBmc] = Tree()


@TREE.members(
    "Systems/1/Processors", "Processor.v1_18_0", lambda bmc, call: [*numbered("CPU", CPUS), *numbered("GPU", bmc.gpus)]
)
def _processor(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    if name.startswith("GPU"):
        return {
            **bmc.part("GPU", f"Processors/{name}"),
            "ProcessorType": "GPU",
            "Socket": name,
            "FirmwareVersion": bmc.updates.versions(call.now)[name],
            "MemorySummary": {"TotalMemorySizeMiB": GPU_MIB},
            "EnvironmentMetrics": link(f"{call.path}/EnvironmentMetrics"),
            "Status": OK,
            "Location": slot("Slot", name),
        }
    arm = bool(bmc.gpus)
    return {
        **bmc.part("ARM" if arm else "CPU", f"Processors/{name}"),
        "ProcessorType": "CPU",
        "ProcessorArchitecture": "ARM" if arm else "x86",
        "InstructionSet": "ARM-A64" if arm else "x86-64",
        "Socket": name,
        "TotalCores": CORES,
        "TotalThreads": CORES if arm else 2 * CORES,
        "MaxSpeedMHz": 3700,
        "Status": OK,
        "Location": slot("Socket", name),
    }


@TREE.members("Systems/1/Memory", "Memory.v1_18_0", numbered("DIMM", DIMMS))
def _dimm(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    return {
        **bmc.part("DIMM", f"Memory/{name}"),
        "MemoryType": "DRAM",
        "MemoryDeviceType": "DDR5",
        "CapacityMiB": DIMM_MIB,
        "OperatingSpeedMhz": 4800,
        "DeviceLocator": name,
        "ErrorCorrection": "MultiBitECC",
        "Status": OK,
        "Location": slot("Slot", name),
    }


@TREE.members("Systems/1/Storage", "Storage.v1_15_0", ["1"])
def _storage(bmc: NodeBmc, call: Call) -> Json:
    drives = [link(f"{call.path}/Drives/{name}") for name in numbered("Disk", DRIVES)]
    return {"Name": "NVMe", "Status": OK, "Drives": drives, "Drives@odata.count": DRIVES}


@TREE.view("Systems/1/Storage/1/Drives/*", "Drive.v1_18_0")
def _drive(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in numbered("Disk", DRIVES):
        return None
    return {
        **bmc.part("Drive", f"Drives/{name}"),
        "MediaType": "SSD",
        "Protocol": "NVMe",
        "CapacityBytes": DRIVE_BYTES,
        "PredictedMediaLifeLeftPercent": 98,
        "Revision": "1UET7103",
        "Status": OK,
        "PhysicalLocation": slot("Bay", name),
        "Links": {"Chassis": link(CHASSIS)},
    }


# -- network ports, as the system and as the chassis see them, and the switch that they hear


@TREE.members("Systems/1/EthernetInterfaces", "EthernetInterface.v1_9_0", INTERFACES)
def _interface(bmc: NodeBmc, call: Call) -> Json:
    port = INTERFACES[call.ids[0]]
    adapter, _, number = port.partition("/")
    mac = bmc.site.mac(bmc.node, port)
    return {
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp",
        "SpeedMbps": 200_000,
        "Status": OK,
        "Links": {"Ports": links(f"{CHASSIS}/NetworkAdapters/{adapter}/Ports/{number}")},
    }


@TREE.members("Chassis/1/NetworkAdapters", "NetworkAdapter.v1_10_0", ADAPTERS)
def _adapter(bmc: NodeBmc, call: Call) -> Json:
    return {
        **bmc.part("NIC", f"NetworkAdapters/{call.ids[0]}"),
        "Status": OK,
        "Ports": link(f"{call.path}/Ports"),
        "Controllers": [{"FirmwarePackageVersion": bmc.updates.versions(call.now)["NIC1"]}],
    }


@TREE.members("Chassis/1/NetworkAdapters/*/Ports", "Port.v1_11_0", lambda _, call: ["1"] * (call.ids[0] in ADAPTERS))
def _port(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    leaf, place = leaf_of(bmc.node)
    port = port_name(leaf_port(place, ADAPTERS.index(name)))
    heard = lldp(switch_mac(bmc.site.nodes.seed, leaf_name(leaf)), "IfName", port, leaf_name(leaf))
    mac = bmc.site.mac(bmc.node, f"{name}/1")
    return {
        "Name": f"{name} port 1",
        "PortId": "1",
        "PortProtocol": "Ethernet",
        "PortMedium": "Electrical",
        "LinkStatus": "LinkUp",
        "LinkState": "Enabled",
        "CurrentSpeedGbps": 200,
        "Status": OK,
        "Ethernet": {"AssociatedMACAddresses": [mac], "LLDPEnabled": True, "LLDPReceive": heard},
    }


# -- power supplies and fans


@TREE.view("Chassis/1/PowerSubsystem", "PowerSubsystem.v1_1_0")
def _power_subsystem(bmc: NodeBmc, call: Call) -> Json:
    supplies = link(f"{call.path}/PowerSupplies")
    return {"Name": "Power", "Status": OK, "CapacityWatts": SUPPLIES * SUPPLY_WATTS, "PowerSupplies": supplies}


@TREE.members("Chassis/1/PowerSubsystem/PowerSupplies", "PowerSupply.v1_5_0", numbered("PS", SUPPLIES))
def _supply(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    return {
        **bmc.part("PSU", f"PowerSupplies/{name}"),
        "PowerSupplyType": "AC",
        "PowerCapacityWatts": SUPPLY_WATTS,
        "FirmwareVersion": "1.02",
        "LineInputStatus": "Normal",
        "Status": OK,
        "Location": slot("Bay", name),
    }


@TREE.view("Chassis/1/ThermalSubsystem", "ThermalSubsystem.v1_2_0")
def _thermal_subsystem(bmc: NodeBmc, call: Call) -> Json:
    fans, metrics = link(f"{call.path}/Fans"), link(f"{call.path}/ThermalMetrics")
    return {"Name": "Thermal", "Status": OK, "Fans": fans, "ThermalMetrics": metrics}


@TREE.members("Chassis/1/ThermalSubsystem/Fans", "Fan.v1_5_0", numbered("Fan", FANS))
def _fan(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    speed, source = bmc.reading(name, call.now), f"{CHASSIS}/Sensors/{name}"
    percent = {"Reading": round(speed / 200, 1), "SpeedRPM": speed, "DataSourceUri": source}
    return {"SpeedPercent": percent, "Status": OK, "Location": slot("Bay", name)}


# -- firmware settings: those in force, and those that wait for the next start


@TREE.view("Systems/1/Bios", "Bios.v1_2_1")
def _bios(bmc: NodeBmc, call: Call) -> Json:
    settings = {
        "@odata.type": "#Settings.v1_3_5.Settings",
        "SettingsObject": link(f"{BIOS}/Settings"),
        "SupportedApplyTimes": ["OnReset"],
    }
    return {
        "Name": "BIOS settings",
        "Attributes": ATTRIBUTES | bmc.bios,
        "Actions": action(BIOS, "Bios.ResetBios"),
        "@Redfish.Settings": settings,
    }


@TREE.view("Systems/1/Bios/Settings", "Bios.v1_2_1")
def _staged(bmc: NodeBmc, call: Call) -> Json:
    return {"Name": "BIOS settings at the next start", "Attributes": bmc.staged}


@TREE.handles("PATCH Systems/1/Bios/Settings")
def _stage(bmc: NodeBmc, call: Call) -> Reply:
    allowed = {"Attributes": (dict,), "@Redfish.SettingsApplyTime": (dict,)}
    wanted = only(read_json(call.request.body), **allowed).get("Attributes")
    if not isinstance(wanted, dict):
        refuse(400, "PropertyMissing", "Attributes is missing.")
    for name, value in wanted.items():
        if name not in ATTRIBUTES:
            refuse(400, "PropertyUnknown", f"There is no attribute {name[:80]}.")
        if type(value) is not type(ATTRIBUTES[name]):
            refuse(400, "PropertyValueTypeError", f"{name} has a value of the wrong type.")
    bmc.staged |= wanted
    return done()


@TREE.handles("POST Systems/1/Bios/Actions/Bios.ResetBios")
def _reset_bios(bmc: NodeBmc, call: Call) -> Reply:
    bmc.staged = dict(ATTRIBUTES)
    return done()
