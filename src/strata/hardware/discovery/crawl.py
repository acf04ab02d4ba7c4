"""Reads everything that one Redfish service tells of its hardware, with as few requests as it allows.

The walk goes down from the service root along subordinate resources. What is known to be no hardware (logs, sessions,
certificates) is left out by name; what is not known at all is kept as ``other``, by the name that the service has for
it. A resource that cannot be read is trouble, and the rest is read all the same. Nothing that a service says makes
the walk fail, loop or grow without bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from strata.core.errors import DeviceError, NotOffered, OutcomeUnknown, Unavailable
from strata.hardware.bmc.protocol import Identity
from strata.hardware.bmc.redfish.client import ROOT, RedfishClient
from strata.hardware.bmc.redfish.endpoint import Json, below, items
from strata.hardware.bmc.redfish.pairing import CARDS, Home, Where, home_of, manager_of, outermost
from strata.hardware.discovery.crawl_values import (
    absent,
    fact,
    first,
    health,
    mac,
    number,
    serial,
    text,
    type_of,
    uuid,
)
from strata.hardware.inventory.records import Component, ComponentKind, Found, Machine, Neighbour, Port

LEVELS: Mapping[str, int] = {
    "Systems": 3, "Chassis": 5, "Managers": 3, "Fabrics": 5, "PowerEquipment": 5, "Storage": 3, "NetworkAdapters": 3,
    "Processors": 1, "Memory": 1, "EthernetInterfaces": 1, "PCIeDevices": 1, "Ports": 1, "Controllers": 1,
    "PowerSupplies": 1, "Fans": 1, "Batteries": 1, "Switches": 3, "RackPDUs": 3, "PowerShelves": 3, "Outlets": 1,
    "NetworkDeviceFunctions": 1, "ResourceBlocks": 1, "OutletGroups": 1, "NetworkPorts": 1, "DedicatedNetworkPorts": 1,
}  # fmt: skip
"""Collections that are asked for with what is in them, and how deep; no deeper than the entries of logs."""

NO_HARDWARE = frozenset(
    (
        # of the root
        "SessionService", "AccountService", "EventService", "Registries", "JsonSchemas", "UpdateService", "Tasks",
        "TelemetryService", "CertificateService", "KeyService", "LicenseService", "AggregationService", "JobService",
        "ServiceConditions", "ComponentIntegrity", "RegisteredClients", "ResourceZones", "CompositionReservations",
        # of systems and managers
        "LogServices", "Bios", "BootOptions", "SecureBoot", "VirtualMedia", "NetworkProtocol", "SerialInterfaces",
        "HostInterfaces", "NetworkInterfaces", "SecurityPolicy", "MemoryDomains", "RemoteAccountService", "VirtualCXL",
        "ManagerDiagnosticData", "OperatingSystem", "KeyManagement", "SecureBootDatabases",
        # of parts
        "Sensors", "Controls", "Certificates", "Metrics", "EnvironmentMetrics", "ThermalMetrics", "PowerMetrics",
        "Assembly", "Volumes", "StoragePools", "StorageGroups", "EndpointGroups", "ConsistencyGroups", "FileSystems",
        "AccelerationFunctions", "OperatingConfigs", "AppliedOperatingConfig", "Capabilities", "SubProcessors",
        "VLANs", "PCIeFunctions", "PCIeSlots", "NVMe",
        # of fabrics
        "Endpoints", "Zones", "AddressPools", "Connections",
        # of every resource
        "Links", "Actions", "Oem", "Status", "Settings",
    )
)  # fmt: skip
"""Properties that lead to no parts: to what runs on them, is made of them, or is said of them elsewhere."""

NOBODY = "nobody answers"
"""How the error of a silent BMC begins, whatever it was asked first."""

FIRST = {"Systems": 0, "Chassis": 1}
"""What is looked at before the rest."""

ELSEWHERE = ("Drives", "PCIeDevices")
"""Lists of parts that may be anywhere in the service, not only under the resource that lists them."""


class CrawlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one BMC can make us do."""

    resources: int = 4096
    """Resources looked at."""
    requests: int = 1024
    depth: int = 12
    silences: int = 3
    """Requests in a row without an answer, after which the rest is not asked for."""
    busy: float = 30.0
    """Seconds for which one that asks for patience is waited for, again and again as long as it then answers."""
    troubles: int = 64
    """Troubles kept; the rest are counted."""


async def crawl(
    client: RedfishClient,
    address: str,
    *,
    settings: CrawlSettings | None = None,
    clock: Callable[[], float] = time.time,
) -> Found:
    """Everything that the BMC tells. Raises ``DeviceError`` only if not even its service root can be read."""
    walk = _Walk(client, address, settings or CrawlSettings())
    try:
        root = (await client.get(address, f"{ROOT}/")).body
    except DeviceError as wrong:
        if not client.bmc(address).dead:
            raise
        raise DeviceError(NOBODY, node=address, request=wrong.request, hint=wrong.detail) from wrong
    await walk.everything(root)
    return walk.found(root, clock())


class _Walk:
    """One walk through one service."""

    def __init__(self, client: RedfishClient, address: str, settings: CrawlSettings) -> None:
        self._client = client
        self._address = address.rstrip("/")
        self._prefix = client.bmc(address).path
        self._settings = settings
        self._levels = 0
        self._plural = False
        self._asked = 0
        self._silences = 0
        self._waited = False
        self._stopped = False
        self._seen: set[str] = set()
        self._parts: dict[str, Component] = {}
        self._ports: dict[str, Port] = {}
        self._systems: dict[str, Json] = {}
        self._chassis: dict[str, Json] = {}
        self._managers: dict[str, Json] = {}
        self._fabric = ""
        self._trouble: list[str] = []
        self._troubles = 0
        self._unread: list[str] = []
        """What is there, and could not be read this time."""

    async def everything(self, root: Json) -> None:
        expand = below(root, "ProtocolFeaturesSupported", "ExpandQuery")
        if expand.get("NoLinks") is True:
            most = expand.get("MaxLevels")
            self._plural = expand.get("Levels") is True
            self._levels = most if isinstance(most, int) and not isinstance(most, bool) and self._plural else 1
        # A part that hangs in two places is in the first: rather in its system than in the chassis around it.
        hanging = sorted(_subordinate(root, ROOT, self._prefix), key=lambda one: FIRST.get(one[0], len(FIRST)))
        for name, link in hanging:
            await self._visit(link, "", name, 0)

    def found(self, root: Json, now: float) -> Found:
        where = partial(_link_path, prefix=self._prefix)
        homes = {path: home_of(path, self._systems, self._chassis, self._managers, where) for path in self._systems}
        for path, home in homes.items():
            inside = (*home.own, *home.shared)
            if inside:
                # Of the chassis around it, the one that it has for itself says whose the parts in there are.
                self._parts[path] = msgspec.structs.replace(self._parts[path], parent=inside[0])
        parts = tuple(self._parts.values())
        alone = len(self._systems) == 1
        machines = tuple(
            machine(body, path, self._address, parts, _of_node(body, homes[path]), alone=alone)
            for path, body in self._systems.items()
        )
        return Found(
            address=self._address,
            identity=self._identity(root, homes, where),
            time=now,
            machines=machines,
            components=parts,
            ports=tuple(self._ports.values()),
            fabric=self._fabric,
            trouble=(*self._trouble, *self._more_trouble()),
        )

    def _more_trouble(self) -> tuple[str, ...]:
        """How much is not listed; without a path, so that nothing from before is taken to be gone."""
        more = self._troubles - self._settings.troubles
        return (f"and {more} more resources could not be read",) if more > 0 else ()

    def _identity(self, root: Json, homes: Mapping[str, Home], where: Where) -> Identity:
        """Of the one machine, or (with several, or none) of what they are in."""
        owned = [one for home in homes.values() for one in home.own]
        around = outermost(self._chassis, owned, where) or min(self._chassis, default="")
        main = self._parts.get(next(iter(homes)) if len(homes) == 1 else around)
        manager = self._manager(root, main.id if main else "", where)
        return Identity(
            vendor=(main.vendor if main else "") or first(manager, "Manufacturer") or first(root, "Vendor"),
            model=(main.model if main else "") or first(manager, "Model") or first(root, "Product"),
            serial=(main.serial if main else "") or serial(manager.get("SerialNumber")),
            uuid=uuid(root.get("UUID")) or uuid(manager.get("UUID")),
            firmware=first(manager, "FirmwareVersion"),
        )

    def _manager(self, root: Json, resource: str, where: Where) -> Json:
        """The manager that answers for the resource, or for all there is; nothing where that is not told."""
        body = self._systems.get(resource) or self._chassis.get(resource) or {}
        found = manager_of(resource, body, self._managers, text(root.get("UUID")), where)
        return self._managers.get(found[0], {}) if len(found) == 1 else {}

    # -- down the tree

    async def _visit(self, link: Json, parent: str, name: str, depth: int) -> None:
        """Look at the resource behind ``link``, which may be all there, and at what is under it."""
        path = _path(link, self._prefix)
        if not path or path in self._seen or self._stopped:
            return
        if depth > self._settings.depth or len(self._seen) >= self._settings.resources:
            self._stop(f"{path}: not read: the service has more than is looked at")
            return
        self._seen.add(path)
        body = link if "@odata.type" in link or "Members" in link else await self._get(path, name)
        if body is None:
            return
        if "Members" in body:
            await self._members(body, path, parent, name, depth)
            return
        parent = self._keep(body, path, parent)
        # The older resources last: whether they are read depends on what the newer ones have.
        for inside, link in sorted(_subordinate(body, path, self._prefix), key=lambda one: one[0] in OLDER):
            if inside not in OLDER or not self._told(inside, body, parent):
                await self._visit(link, parent, inside, depth + 1)

    def _told(self, older: str, body: Json, parent: str) -> bool:
        """Whether the newer resource in place of ``older`` told of its parts, or will when it can be read again."""
        newer, kind = OLDER[older]
        place = _path(below(body, newer), self._prefix)
        if not place:
            return False
        later = any(path == place or path.startswith(f"{place}/") for path in self._unread)
        return later or any(part.kind == kind and part.parent == parent for part in self._parts.values())

    async def _members(self, body: Json, path: str, parent: str, name: str, depth: int) -> None:
        if type_of(body).removesuffix("Collection") in NO_PARTS:
            return
        while True:
            for member in items(body, "Members"):
                await self._visit(member, parent, name, depth + 1)
            onward = body.get("Members@odata.nextLink") or body.get("@odata.nextLink")
            page = _path({"@odata.id": onward}, self._prefix, query=True)
            if not page or page in self._seen or not page.startswith(path):
                return
            self._seen.add(page)
            more = await self._get(page, "")
            if more is None:
                return
            body = more

    def _keep(self, body: Json, path: str, parent: str) -> str:
        """Take in what a resource says; the id of what its parts are in."""
        kind = type_of(body)
        if kind in PORTS:
            if not absent(body):
                self._ports[path] = port(body, path, parent)
            return parent
        if kind == "NetworkDeviceFunction" and parent in self._parts:
            macs = dict.fromkeys((*self._parts[parent].macs, *_macs(below(body, "Ethernet"))))
            self._parts[parent] = msgspec.structs.replace(self._parts[parent], macs=tuple(macs))
            return parent
        if kind == "Fabric":
            self._fabric = self._fabric or first(body, "Id", "Name")
        found = component(body, path, parent)
        for part in inner(body, path, parent if found is None else path):
            self._parts[part.id] = part
        if found is None:
            return parent
        self._parts[path] = found
        # What a resource block could be made into a system of is no machine yet.
        if kind == "ComputerSystem" and path.startswith(f"{ROOT}/Systems/"):
            self._systems[path] = body
        elif kind == "Chassis":
            self._chassis[path] = body
        elif kind == "Manager":
            self._managers[path] = body
        return path

    # -- the wire

    async def _get(self, path: str, name: str) -> Json | None:
        """The resource at ``path``, expanded where it is a collection and the service can; None: it is trouble."""
        levels = min(self._levels, LEVELS.get(name, 0))
        try:
            if levels:
                try:
                    how = f"?$expand=.($levels={levels})" if self._plural else "?$expand=."
                    return await self._ask(path + how, timeout=self._client.settings.timeout)
                except DeviceError:
                    self._levels = 0  # says that it can, and cannot: ask for one at a time from here on
            return await self._ask(path)
        except (DeviceError, OutcomeUnknown, Unavailable) as wrong:
            self._note(f"{path}: {wrong.detail}")
            if not isinstance(wrong, NotOffered):
                self._unread.append(path)
            return None

    async def _ask(self, path: str, *, timeout: float = 0.0) -> Json | None:
        if self._asked >= self._settings.requests:
            self._stop(f"{path}: not read: it would take more than {self._asked} requests")
            return None
        self._asked += 1
        bmc = self._client.bmc(self._address)
        try:
            body = (await self._client.get(self._address, path, timeout=timeout)).body
        except DeviceError:
            wait = bmc.quiet_until - self._client.clock()
            if 0 < wait <= self._settings.busy and not self._waited:
                # It asks for patience, and nobody else waits for it here.
                self._waited = True
                await asyncio.sleep(wait)
                return await self._ask(path, timeout=timeout)
            self._silences = self._silences + 1 if bmc.dead else 0
            if self._silences >= self._settings.silences:
                self._stop("/: the rest was not read: it stopped answering")
            raise
        self._silences, self._waited = 0, False
        return body

    def _note(self, trouble: str) -> None:
        self._troubles += 1
        if len(self._trouble) < self._settings.troubles:
            self._trouble.append(text(trouble, 300))

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._trouble.insert(0, text(why, 300))


def _subordinate(body: Json, path: str, prefix: str) -> Iterator[tuple[str, Json]]:
    """What hangs off a resource and may be hardware: property and link."""
    for name in ELSEWHERE:
        for link in (*items(body, name), *items(below(body, "Links"), name)):
            yield name, link
    for name, value in body.items():
        if name in NO_HARDWARE or "@" in name:
            continue
        for link in (value,) if isinstance(value, dict) else items(body, name):
            if _path(link, prefix).startswith(path + "/") and "#" not in str(link.get("@odata.id")):
                yield name, link


OLDER: Mapping[str, tuple[str, ComponentKind]] = {
    "Power": ("PowerSubsystem", "power-supply"),
    "Thermal": ("ThermalSubsystem", "fan"),
}
"""Resources that need not be read where a newer one tells of the same parts: the newer one, and the parts."""


def _of_node(system: Json, home: Home) -> tuple[str, ...]:
    """The chassis whose parts are the system's; the adapters of a card are seen by the node that it is in."""
    return () if text(system.get("SystemType")) in CARDS else home.own


def _link_path(link: object, prefix: str) -> str:
    return _path(link, prefix) if isinstance(link, Mapping) else ""


def _path(link: Json, prefix: str, *, query: bool = False) -> str:
    """The path that a link names; empty where it names none of this service."""
    found = link.get("@odata.id")
    if not isinstance(found, str) or len(found) > 512 or not found.isprintable() or " " in found:
        return ""
    path = found.removeprefix(prefix).partition("#")[0].rstrip("/")
    if "?" in path and not query:
        return ""
    return path if path.startswith(f"{ROOT}/") and "/../" not in path else ""


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
        "Fabric", "NetworkDeviceFunction", "CompositionService", "LeakDetection",
    )
)  # fmt: skip
"""Types that are no parts themselves: they hold some, or say more of one."""

PORTS = frozenset(("Port", "NetworkPort"))

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
    "OutletGroup": {"power": "PowerState", "made_by": "CreatedBy"},
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
    shape = text(body.get("@odata.type")).lstrip("#") if kind == "other" else ""
    return _part(body, path, kind, first(body, "Name", "Id"), _parent(body, kind_of) or parent, kind_of, shape)


def _part(body: Json, path: str, kind: ComponentKind, name: str, parent: str, kind_of: str, shape: str) -> Component:
    """``kind_of``: the type of resource whose facts it has."""
    facts = {ours: fact(body.get(source)) for ours, source in FACTS.get(kind_of, {}).items()}
    return Component(
        id=path,
        kind=kind,
        name=name,
        parent=parent,
        slot=_slot(body),
        vendor=first(body, "Manufacturer", "Vendor"),
        model=first(body, "Model", "VersionString"),
        part=first(body, "PartNumber", "SparePartNumber"),
        serial=serial(body.get("SerialNumber")),
        firmware=_firmware(body),
        health=health(body),
        macs=_macs(body),
        facts={ours: value for ours, value in facts.items() if value is not None},
        shape=shape,
    )


_SHAPES: Mapping[ComponentKind, str] = {"drive": "Drive", "power-supply": "PowerSupply"}
"""Whose facts the parts have that a resource lists within itself."""


def inner(body: Json, path: str, parent: str) -> Iterator[Component]:
    """Parts of ``parent`` that a resource lists within itself."""
    kind = type_of(body)
    lists: dict[str, tuple[ComponentKind, str]] = {}
    if kind == "SimpleStorage":
        lists["Devices"] = ("drive", "")
    elif kind == "Storage" and "Controllers" not in body:
        lists["StorageControllers"] = ("storage", "")
    elif kind == "ComputerSystem":
        lists["TrustedModules"] = ("other", "TrustedModule")
    elif kind == "Power":
        lists["PowerSupplies"] = ("power-supply", "")
    elif kind == "Thermal":
        lists["Fans"] = ("fan", "")
    for name, (what, shape) in lists.items():
        for at, item in enumerate(items(body, name)):
            if not absent(item):
                called = first(item, "Name", "FanName", "MemberId", "InterfaceType") or f"{name} {at}"
                yield _part(item, f"{path}#/{name}/{at}", what, called, parent, _SHAPES.get(what, ""), shape)


def port(body: Json, path: str, owner: str) -> Port:
    """A port of a switch or NIC, with what it hears from the other end."""
    ethernet = below(body, "Ethernet")
    heard = below(ethernet, "LLDPReceive")
    neighbour = Neighbour(
        chassis=text(heard.get("ChassisId")),
        port=text(heard.get("PortId")),
        system=text(heard.get("SystemName")),
        mac=mac(heard.get("ManagementAddressMAC")),
    )
    macs = ethernet.get("AssociatedMACAddresses") or body.get("AssociatedNetworkAddresses")
    found = [mac(item) for item in macs[:16]] if isinstance(macs, list) else []
    links = below(body, "Links")
    names = ("ConnectedPorts", "ConnectedSwitchPorts", "ConnectedSwitches")
    ends = [end for name in names for end in items(links, name)]
    return Port(
        id=path,
        owner=owner,
        name=first(body, "PortId", "PhysicalPortNumber", "Name", "Id"),
        up={"LinkUp": True, "Up": True, "LinkDown": False, "Down": False}.get(first(body, "LinkStatus", "LinkState")),
        speed_gbps=_gbps(body),
        mac=next(filter(None, found), ""),
        neighbour=neighbour if neighbour != Neighbour() else None,
        connected=tuple(filter(None, (text(end.get("@odata.id"), 512) for end in ends[:16]))),
    )


def _gbps(body: Json) -> float | None:
    """The speed of a port; older ones tell of megabits."""
    found, older = number(body.get("CurrentSpeedGbps")), number(body.get("CurrentLinkSpeedMbps"))
    return found if found is not None or older is None else older / 1000


def machine(
    body: Json, path: str, address: str, parts: Sequence[Component], chassis: Sequence[str], *, alone: bool
) -> Machine:
    """The computer that a ComputerSystem resource describes. ``chassis``: those that it has for itself; ``alone``: the
    BMC has no other."""
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


def _macs(body: Json) -> tuple[str, ...]:
    """The addresses of a NIC, or of a function of one."""
    found = (mac(body.get(name)) for name in ("PermanentMACAddress", "MACAddress"))
    return tuple(dict.fromkeys(filter(None, found)))


def _parent(body: Json, kind: str) -> str:
    """What a chassis itself says that it is in; of a system that is found out when all chassis are known."""
    within = below(body, "Links", "ContainedBy")
    return text(within.get("@odata.id"), 512).rstrip("/") if kind == "Chassis" else ""


def _slot(body: Json) -> str:
    where = below(body, "PhysicalLocation") or below(body, "Location")
    label = text(below(where, "PartLocation").get("ServiceLabel"))
    return label or first(body, "DeviceLocator", "Socket") or text(below(body, "Slot").get("Location"))


def _firmware(body: Json) -> str:
    inside = items(body, "Controllers")
    return first(body, "FirmwareVersion", "BiosVersion", "Revision") or (
        first(inside[0], "FirmwarePackageVersion") if inside else ""
    )
