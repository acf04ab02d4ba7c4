"""What a node is made of, as its BMC told at discovery: processors, memory, interfaces, storage and drives.

A node that was not discovered has all these collections; they are empty. A drive's home is the node's enclosure; its
storage links there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from strata.api.redfish.protocol.route import Call, Json, Routes, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.chassis import node_here
from strata.api.redfish.resources.forms import known, label, mac, maker, plain, present, slot, status, whole, word
from strata.api.redfish.resources.ids import CHASSIS, SYSTEMS
from strata.api.redfish.resources.needs import READ
from strata.fleet.nodes.service import NodeService
from strata.hardware.inventory.records import ComponentView

_MEMORY_TYPES = (
    "DDR", "DDR2", "DDR3", "DDR4", "DDR5", "LPDDR3_SDRAM", "LPDDR4_SDRAM", "LPDDR5_SDRAM", "HBM", "HBM2", "HBM2E",
    "HBM3", "GDDR5", "GDDR6", "ROM",
)  # fmt: skip
_ARCHITECTURES = {
    "x86": "x86",
    "x86-64": "x86",
    "ARM-A32": "ARM",
    "ARM-A64": "ARM",
    "PowerISA": "Power",
    "RV64": "RISC-V",
}
"""The architecture that each instruction set is of."""
_PROTOCOLS = ("PCIe", "SAS", "SATA", "USB", "NVMe", "FC", "iSCSI")
_MEDIA = ("HDD", "SSD", "SMR")
_LOOSE = "Drives"
"""The storage that stands for drives whose controller nobody named."""
_HERE = f"{SYSTEMS}/{{system}}"

ROUTES = Routes()


def _of_kind(*kinds: str) -> Callable[[Call], Awaitable[dict[str, ComponentView]]]:
    """Finds the parts of a node that are of these kinds, by id; fails where there is no such node."""

    async def find(call: Call) -> dict[str, ComponentView]:
        view = await call.of(NodeService).node(call.who, call.params["system"])
        found = await live.components(call, view.name, *kinds)
        return ids.by_last_part(_interfaces(found) if "nic" in kinds else found)

    return find


def _interfaces(cards: Sequence[ComponentView]) -> list[ComponentView]:
    """One for each address: a card may have several, and may be described together with its interfaces."""
    found = {address: replace(card, macs=(address,)) for card in reversed(cards) for address in card.macs}
    return list(found.values())[::-1]


@ROUTES.members(f"{_HERE}/Processors/{{part}}", "Processor", "Processors", READ, _of_kind("processor", "accelerator"))
async def _processor(call: Call, path: str, part: ComponentView) -> Json:
    cpu = part.kind == "processor"
    instructions = word(part, "architecture", _ARCHITECTURES)
    return resource(
        path,
        "Processor",
        label(part, path),
        ProcessorType=word(part, "type", ("CPU", "GPU", "FPGA", "DSP", "Accelerator")) or ("CPU" if cpu else "GPU"),
        ProcessorArchitecture=_ARCHITECTURES.get(instructions or ""),
        InstructionSet=instructions,
        MaxSpeedMHz=whole(part, "speed_mhz"),
        TotalCores=whole(part, "cores"),
        TotalThreads=whole(part, "threads"),
        Socket=plain(part.slot),
        **present(part),
        **known({"FirmwareVersion": plain(part.firmware)}),
    )


@ROUTES.members(f"{_HERE}/Memory/{{part}}", "Memory", "Memory", READ, _of_kind("memory"))
async def _memory(call: Call, path: str, part: ComponentView) -> Json:
    return resource(
        path,
        "Memory",
        label(part, path),
        CapacityMiB=whole(part, "capacity_mib"),
        OperatingSpeedMhz=whole(part, "speed_mhz"),
        MemoryDeviceType=word(part, "type", _MEMORY_TYPES),
        **present(part),
    )


@ROUTES.members(
    f"{_HERE}/EthernetInterfaces/{{part}}", "EthernetInterface", "Ethernet interfaces", READ, _of_kind("nic")
)
async def _interface(call: Call, path: str, part: ComponentView) -> Json:
    return resource(
        path,
        "EthernetInterface",
        label(part, path),
        MACAddress=mac(part.macs[0]),
        PermanentMACAddress=mac(part.macs[0]),
        SpeedMbps=whole(part, "speed_mbps"),
        LinkStatus=word(part, "link", ("LinkUp", "LinkDown", "NoLink")),
        Status=status("Enabled", part.health),
    )


# -- storage


class _Storage(Struct, frozen=True):
    """Storages and drives of a node, by id, and which storage each drive is in."""

    stores: dict[str, ComponentView | None]
    drives: dict[str, ComponentView]
    homes: dict[str, str]


async def _storage_of(call: Call, node: str) -> _Storage:
    parts = await live.components(call, node)
    paths = {part.id for part in parts if part.kind == "storage"}
    # A controller within a storage is a part of it, not another one.
    whole_ones = [part for part in parts if part.id in paths and part.parent not in paths]
    drives = ids.by_last_part(part for part in parts if part.kind == "drive")
    named = ids.by_last_part(whole_ones)
    by_path = {part.id: ident for ident, part in named.items()}
    homes = {ident: _home(part, by_path) for ident, part in drives.items()}
    stores: dict[str, ComponentView | None] = {**named}
    if _LOOSE in homes.values():
        stores.setdefault(_LOOSE, None)
    return _Storage(stores, drives, homes)


def _home(drive: ComponentView, stores: dict[str, str]) -> str:
    within = (ident for path, ident in stores.items() if drive.id.startswith(f"{path}/"))
    return stores.get(drive.parent) or next(within, _LOOSE)


async def _storages(call: Call) -> dict[str, tuple[_Storage, ComponentView | None]]:
    view = await call.of(NodeService).node(call.who, call.params["system"])
    found = await _storage_of(call, view.name)
    return {ident: (found, part) for ident, part in found.stores.items()}


@ROUTES.members(f"{_HERE}/Storage/{{storage}}", "Storage", "Storage", READ, _storages)
async def _storage(call: Call, path: str, here: tuple[_Storage, ComponentView | None]) -> Json:
    (found, part), home = here, ids.enclosure(call.params["system"])
    mine = [drive for drive, store in found.homes.items() if store == call.params["storage"]]
    return resource(
        path,
        "Storage",
        label(part, path) if part is not None else "Drives",
        Drives=[link(f"{home}/Drives/{drive}") for drive in mine],
        **{"Drives@odata.count": len(mine)},
        Status=status("Enabled", part.health if part is not None else None),
        Links={"Enclosures": [link(home)]},
    )


async def _drives(call: Call) -> dict[str, tuple[_Storage, ComponentView]]:
    found = await _storage_of(call, (await node_here(call)).name)
    return {ident: (found, part) for ident, part in found.drives.items()}


@ROUTES.members(f"{CHASSIS}/{{chassis}}/Drives/{{drive}}", "Drive", "Drives", READ, _drives)
async def _drive(call: Call, path: str, here: tuple[_Storage, ComponentView]) -> Json:
    (found, part), node = here, ids.node_of_enclosure(call.params["chassis"])
    storage = f"{ids.system(node)}/Storage/{found.homes[call.params['drive']]}"
    return resource(
        path,
        "Drive",
        label(part, path),
        CapacityBytes=whole(part, "capacity_bytes"),
        MediaType=word(part, "type", _MEDIA),
        Protocol=word(part, "protocol", _PROTOCOLS),
        FirmwareVersion=plain(part.firmware),
        Status=status("Enabled", part.health),
        **maker(part),
        **({"PhysicalLocation": slot(part)["Location"]} if plain(part.slot) else {}),
        Links={"Chassis": link(ids.enclosure(node)), "Storage": link(storage)},
    )
