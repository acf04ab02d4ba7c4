"""What a Redfish resource says about a part: one resource in, components (or a port, or a machine) out. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strata.hardware.discovery.crawl_values import (
    Json,
    absent,
    fact,
    first,
    health,
    mac,
    number,
    rows,
    serial,
    table,
    text,
    type_of,
    uuid,
)
from strata.hardware.inventory.found import Component, ComponentKind, Machine, Neighbour, Port

KINDS: Mapping[str, ComponentKind] = {
    "ComputerSystem": "system",
    "Chassis": "chassis",
    "Manager": "manager",
    "Processor": "processor",
    "Memory": "memory",
    "Drive": "drive",
    "Storage": "storage",
    "SimpleStorage": "storage",
    "StorageController": "storage",
    "EthernetInterface": "nic",
    "NetworkAdapter": "nic",
    "PowerSupply": "power-supply",
    "Fan": "fan",
    "PCIeDevice": "pcie-device",
    "Switch": "switch",
    "PowerDistribution": "pdu",
    "Outlet": "outlet",
    "Battery": "battery",
}
"""Types of resources that are parts, and what we call them."""

ONLY_HOLD = frozenset(
    (
        "ServiceRoot", "PowerSubsystem", "ThermalSubsystem", "Power", "Thermal", "PowerEquipment", "ThermalEquipment",
        "Fabric", "Port", "NetworkDeviceFunction",
    )
)  # fmt: skip
"""Types that are no parts themselves: they hold some, or say more of one."""

NO_PARTS = frozenset(("Sensor", "Control", "AllowDeny", "LogService", "LogEntry", "Certificate", "Volume", "Endpoint"))
"""Types that are no parts and hold none, wherever a service hangs them."""

ACCELERATORS = frozenset(("GPU", "FPGA", "DSP", "Accelerator"))

FACTS: Mapping[str, Mapping[str, str]] = {
    "ComputerSystem": {"type": "SystemType", "sku": "SKU", "asset": "AssetTag"},
    "Chassis": {"type": "ChassisType", "sku": "SKU", "asset": "AssetTag"},
    "Manager": {"type": "ManagerType"},
    "Processor": {
        "type": "ProcessorType", "cores": "TotalCores", "threads": "TotalThreads", "speed_mhz": "MaxSpeedMHz",
        "architecture": "InstructionSet", "tdp_watts": "TDPWatts",
    },
    "Memory": {"type": "MemoryDeviceType", "capacity_mib": "CapacityMiB", "speed_mhz": "OperatingSpeedMhz"},
    "Drive": {
        "type": "MediaType", "protocol": "Protocol", "capacity_bytes": "CapacityBytes",
        "life_left": "PredictedMediaLifeLeftPercent",
    },
    "EthernetInterface": {"link": "LinkStatus", "speed_mbps": "SpeedMbps"},
    "PowerSupply": {"type": "PowerSupplyType", "capacity_watts": "PowerCapacityWatts"},
    "PCIeDevice": {"type": "DeviceType"},
    "Switch": {"type": "SwitchType", "bandwidth_gbps": "MaxBandwidthGbps"},
    "PowerDistribution": {"type": "EquipmentType"},
    "Outlet": {"type": "OutletType", "rated_amps": "RatedCurrentAmps", "power": "PowerState"},
    "Battery": {"capacity_wh": "CapacityActualWattHours"},
}  # fmt: skip
"""What else is kept of a type: our name of it and the property."""

_ARCHITECTURES = (("x86", "x86_64"), ("arm", "aarch64"), ("power", "ppc64le"), ("rv64", "riscv64"), ("risc", "riscv64"))


def component(body: Json, path: str, parent: str) -> Component | None:
    """The part that a resource describes; None where it is an empty place or no part at all."""
    kind_of = type_of(body)
    if kind_of in ONLY_HOLD or kind_of in NO_PARTS or kind_of.endswith("Collection") or absent(body):
        return None
    kind = KINDS.get(kind_of, "other")
    if kind == "processor" and text(body.get("ProcessorType")) in ACCELERATORS:
        kind = "accelerator"
    return Component(
        id=path,
        kind=kind,
        name=first(body, "Name", "Id"),
        parent=_parent(body, kind_of) or parent,
        slot=_slot(body),
        vendor=first(body, "Manufacturer", "Vendor"),
        model=first(body, "Model", "VersionString"),
        part=first(body, "PartNumber", "SparePartNumber"),
        serial=serial(body.get("SerialNumber")),
        firmware=_firmware(body),
        health=health(body),
        macs=_macs(body),
        facts=_facts(body, kind_of),
        shape=text(body.get("@odata.type")).lstrip("#") if kind == "other" else "",
    )


def inner(body: Json, path: str) -> Iterator[Component]:
    """Parts that a resource lists within itself."""
    kind = type_of(body)
    lists: dict[str, tuple[ComponentKind, str]] = {}
    parent = path
    if kind == "SimpleStorage":
        lists["Devices"] = ("drive", "")
    elif kind == "Storage" and "Controllers" not in body:
        lists["StorageControllers"] = ("storage", "")
    elif kind == "ComputerSystem":
        lists["TrustedModules"] = ("other", "TrustedModule")
    elif kind == "Power":
        lists["PowerSupplies"] = ("power-supply", "")
        parent = path.rpartition("/")[0]
    elif kind == "Thermal":
        lists["Fans"] = ("fan", "")
        parent = path.rpartition("/")[0]
    for name, (what, shape) in lists.items():
        for at, item in enumerate(rows(body.get(name))):
            if not absent(item):
                yield Component(
                    id=f"{path}#/{name}/{at}",
                    kind=what,
                    name=first(item, "Name", "FanName", "MemberId", "InterfaceType") or f"{name} {at}",
                    parent=parent,
                    vendor=first(item, "Manufacturer"),
                    model=first(item, "Model"),
                    part=first(item, "PartNumber", "SparePartNumber"),
                    serial=serial(item.get("SerialNumber")),
                    firmware=_firmware(item),
                    health=health(item),
                    facts=_facts(item, "Drive" if what == "drive" else ""),
                    shape=shape,
                )


def port(body: Json, path: str, owner: str) -> Port:
    """A port of a switch or NIC, with what it hears from the other end."""
    ethernet = table(body.get("Ethernet"))
    heard = table(ethernet.get("LLDPReceive"))
    neighbour = Neighbour(
        chassis=text(heard.get("ChassisId")),
        port=text(heard.get("PortId")),
        system=text(heard.get("SystemName")),
        mac=mac(heard.get("ManagementAddressMAC")),
    )
    macs = ethernet.get("AssociatedMACAddresses") or body.get("AssociatedNetworkAddresses")
    found = [mac(item) for item in macs[:16]] if isinstance(macs, list) else []
    links = table(body.get("Links"))
    ends = [
        end for name in ("ConnectedPorts", "ConnectedSwitchPorts", "ConnectedSwitches") for end in rows(links.get(name))
    ]
    return Port(
        id=path,
        owner=owner,
        name=first(body, "PortId", "PhysicalPortNumber", "Name", "Id"),
        up={"LinkUp": True, "Up": True, "LinkDown": False, "Down": False}.get(first(body, "LinkStatus", "LinkState")),
        speed_gbps=number(body.get("CurrentSpeedGbps")),
        mac=next(filter(None, found), ""),
        neighbour=neighbour if neighbour != Neighbour() else None,
        connected=tuple(filter(None, (text(end.get("@odata.id"), 512) for end in ends[:16]))),
    )


def machine(
    body: Json, path: str, address: str, parts: Sequence[Component], chassis: Sequence[str], *, alone: bool
) -> Machine:
    """The computer that a ComputerSystem resource describes. ``chassis``: those that it has for itself; ``alone``: the
    controller has no other."""
    own = tuple(f"{place}/" for place in (path, *chassis))
    near = [
        part for part in parts if part.id.startswith(own) or (alone and not part.id.startswith("/redfish/v1/Managers/"))
    ]
    macs = dict.fromkeys(found for part in near for found in part.macs)
    sets = [str(part.facts.get("architecture", "")).lower() for part in near if part.kind == "processor"]
    known = [ours for found in sets for begin, ours in _ARCHITECTURES if found.startswith(begin)]
    return Machine(
        id=path,
        address=address if alone else address + path,
        name=first(body, "HostName"),
        serial=serial(body.get("SerialNumber")),
        uuid=uuid(body.get("UUID")),
        type=text(body.get("SystemType")),
        architecture=known[0] if known else "",
        macs=tuple(macs),
        power={"On": "on", "Off": "off"}.get(text(body.get("PowerState")), ""),
    )


def function_macs(body: Json) -> tuple[str, ...]:
    """The addresses of a NIC's function."""
    ethernet = table(body.get("Ethernet"))
    return tuple(filter(None, (mac(ethernet.get(name)) for name in ("PermanentMACAddress", "MACAddress"))))


def _macs(body: Json) -> tuple[str, ...]:
    found = (mac(body.get(name)) for name in ("PermanentMACAddress", "MACAddress"))
    return tuple(dict.fromkeys(filter(None, found)))


def _parent(body: Json, kind: str) -> str:
    """What a chassis itself says that it is in; of a system that is found out when all chassis are known."""
    within = table(table(body.get("Links")).get("ContainedBy"))
    return text(within.get("@odata.id"), 512).rstrip("/") if kind == "Chassis" else ""


def _slot(body: Json) -> str:
    where = table(body.get("PhysicalLocation") or body.get("Location"))
    label = text(table(where.get("PartLocation")).get("ServiceLabel"))
    return label or first(body, "DeviceLocator", "Socket") or text(table(body.get("Slot")).get("Location"))


def _firmware(body: Json) -> str:
    inside = rows(body.get("Controllers"))
    return first(body, "FirmwareVersion", "BiosVersion", "Revision") or (
        first(inside[0], "FirmwarePackageVersion") if inside else ""
    )


def _facts(body: Json, kind: str) -> dict[str, str | int | float | bool]:
    found = {name: fact(body.get(source)) for name, source in FACTS.get(kind, {}).items()}
    return {name: value for name, value in found.items() if value is not None}
