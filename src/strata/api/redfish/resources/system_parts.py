"""What a node is made of, as its controller told at discovery: processors, memory, interfaces.

A node that was not discovered has all these collections; they are empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from strata.api.redfish.protocol.route import Call, Json, Route, collection
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import known, label, mac, maker, plain, present, resource, slot, whole, word
from strata.api.redfish.resources.ids import SYSTEMS
from strata.api.redfish.resources.needs import READ
from strata.core.errors import NotFound
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


async def parts(call: Call, *kinds: str) -> dict[str, ComponentView]:
    """The parts of a node that are of these kinds, by id. ``NotFound`` where there is no such node."""
    view = await call.of(NodeService).node(call.who, call.params["system"])
    hardware = await live.hardware(call, view.name)
    found = [part for part in (hardware.components if hardware is not None else ()) if part.kind in kinds]
    if "nic" in kinds:
        found = _interfaces(found)
    return ids.named(found, lambda part: ids.last_part(part.id))


def _interfaces(cards: Sequence[ComponentView]) -> list[ComponentView]:
    """One for each address: a card may have several, and may be described together with its interfaces."""
    found = {address: replace(card, macs=(address,)) for card in reversed(cards) for address in card.macs}
    return list(found.values())[::-1]


def pick(found: dict[str, ComponentView], ident: str) -> ComponentView:
    """One of them."""
    if ident not in found:
        raise NotFound("no such part", where=ident[:80])
    return found[ident]


def _processor(path: str, ident: str, part: ComponentView) -> Json:
    cpu = part.kind == "processor"
    instructions = word(part, "architecture", _ARCHITECTURES)
    return resource(
        path,
        "Processor.v1_22_0",
        ident,
        label(part, ident),
        ProcessorType=word(part, "type", ("CPU", "GPU", "FPGA", "DSP", "Accelerator")) or ("CPU" if cpu else "GPU"),
        ProcessorArchitecture=_ARCHITECTURES.get(instructions or ""),
        InstructionSet=instructions,
        MaxSpeedMHz=whole(part, "speed_mhz"),
        TotalCores=whole(part, "cores"),
        TotalThreads=whole(part, "threads"),
        Socket=plain(part.slot),
        Status=present(part),
        **maker(part),
        **slot(part),
        **known({"FirmwareVersion": plain(part.firmware)}),
    )


def _memory(path: str, ident: str, part: ComponentView) -> Json:
    return resource(
        path,
        "Memory.v1_23_0",
        ident,
        label(part, ident),
        CapacityMiB=whole(part, "capacity_mib"),
        OperatingSpeedMhz=whole(part, "speed_mhz"),
        MemoryDeviceType=word(part, "type", _MEMORY_TYPES),
        Status=present(part),
        **maker(part),
        **slot(part),
    )


def _interface(path: str, ident: str, part: ComponentView) -> Json:
    return resource(
        path,
        "EthernetInterface.v1_12_4",
        ident,
        label(part, ident),
        MACAddress=mac(part.macs[0]),
        PermanentMACAddress=mac(part.macs[0]),
        SpeedMbps=whole(part, "speed_mbps"),
        LinkStatus=word(part, "link", ("LinkUp", "LinkDown", "NoLink")),
        Status=present(part),
    )


_Shape = Callable[[str, str, ComponentView], Json]
_Handler = Callable[[Call], Awaitable[Json]]


def _collection(segment: str, kind: str, name: str, kinds: Sequence[str]) -> _Handler:
    async def get(call: Call) -> Json:
        path = f"{ids.system(call.params['system'])}/{segment}"
        found = await parts(call, *kinds)
        return collection(path, kind, name, [f"{path}/{ident}" for ident in found])

    return get


def _member(segment: str, shape: _Shape, kinds: Sequence[str]) -> _Handler:
    async def get(call: Call) -> Json:
        part = pick(await parts(call, *kinds), call.params["part"])
        path = f"{ids.system(call.params['system'])}/{segment}/{call.params['part']}"
        return shape(path, call.params["part"], part)

    return get


def _pair(segment: str, kind: str, name: str, shape: _Shape, kinds: Sequence[str]) -> tuple[Route, Route]:
    base = f"{SYSTEMS}/{{system}}/{segment}"
    return (
        Route(template=base, get=_collection(segment, kind, name, kinds), rights={"GET": READ}),
        Route(template=f"{base}/{{part}}", get=_member(segment, shape, kinds), rights={"GET": READ}),
    )


ROUTES = (
    *_pair("Processors", "Processor", "Processors", _processor, ("processor", "accelerator")),
    *_pair("Memory", "Memory", "Memory", _memory, ("memory",)),
    *_pair("EthernetInterfaces", "EthernetInterface", "Ethernet interfaces", _interface, ("nic",)),
)
