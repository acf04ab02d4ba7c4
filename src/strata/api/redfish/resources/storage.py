"""Storage of a node, and the drives in it. A drive's home is the node's enclosure; its storage links there."""

from __future__ import annotations

from msgspec import Struct

from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.chassis import node_here
from strata.api.redfish.resources.forms import label, maker, plain, present, resource, slot, status, whole, word
from strata.api.redfish.resources.ids import CHASSIS, SYSTEMS
from strata.api.redfish.resources.needs import READ
from strata.core.errors import NotFound
from strata.fleet.nodes.service import NodeService
from strata.hardware.inventory.records import ComponentView

_PROTOCOLS = ("PCIe", "SAS", "SATA", "USB", "NVMe", "FC", "iSCSI")
_MEDIA = ("HDD", "SSD", "SMR")
_LOOSE = "Drives"
"""The storage that stands for drives whose controller nobody named."""


class _Storage(Struct, frozen=True):
    """Storages and drives of a node, by id, and which storage each drive is in."""

    stores: dict[str, ComponentView | None]
    drives: dict[str, ComponentView]
    homes: dict[str, str]


async def _storage_of(call: Call, node: str) -> _Storage:
    hardware = await live.hardware(call, node)
    parts = hardware.components if hardware is not None else ()
    paths = {part.id for part in parts if part.kind == "storage"}
    # A controller within a storage is a part of it, not another one.
    whole_ones = [part for part in parts if part.id in paths and part.parent not in paths]
    drives = ids.named((part for part in parts if part.kind == "drive"), lambda part: ids.last_part(part.id))
    known = ids.named(whole_ones, lambda part: ids.last_part(part.id))
    by_path = {part.id: ident for ident, part in known.items()}
    homes = {ident: _home(part, by_path) for ident, part in drives.items()}
    stores: dict[str, ComponentView | None] = {**known}
    if _LOOSE in homes.values():
        stores.setdefault(_LOOSE, None)
    return _Storage(stores, drives, homes)


def _home(drive: ComponentView, stores: dict[str, str]) -> str:
    within = (ident for path, ident in stores.items() if drive.id.startswith(f"{path}/"))
    return stores.get(drive.parent) or next(within, _LOOSE)


async def storages(call: Call) -> Json:
    """All storage of a node."""
    view = await call.of(NodeService).node(call.who, call.params["system"])
    path = f"{ids.system(view.name)}/Storage"
    found = await _storage_of(call, view.name)
    return collection(path, "Storage", "Storage", [f"{path}/{ident}" for ident in found.stores])


async def storage(call: Call) -> Json:
    """One storage, with links to its drives."""
    view = await call.of(NodeService).node(call.who, call.params["system"])
    ident, found = call.params["storage"], await _storage_of(call, view.name)
    if ident not in found.stores:
        raise NotFound("no such storage", where=ident[:80])
    part, home = found.stores[ident], ids.enclosure(view.name)
    drives = [link(f"{home}/Drives/{drive}") for drive, store in found.homes.items() if store == ident]
    return resource(
        f"{ids.system(view.name)}/Storage/{ident}",
        "Storage.v1_21_0",
        ident,
        label(part, ident) if part is not None else "Drives",
        Drives=drives,
        **{"Drives@odata.count": len(drives)},
        Status=present(part) if part is not None else status("Enabled"),
        Links={"Enclosures": [link(home)]},
    )


async def drives(call: Call) -> Json:
    """All drives of a node."""
    view = await node_here(call)
    path = f"{ids.enclosure(view.name)}/Drives"
    found = await _storage_of(call, view.name)
    return collection(path, "Drive", "Drives", [f"{path}/{ident}" for ident in found.drives])


async def drive(call: Call) -> Json:
    """One of them."""
    view = await node_here(call)
    ident, found = call.params["drive"], await _storage_of(call, view.name)
    if ident not in found.drives:
        raise NotFound("no such drive", where=ident[:80])
    part, home = found.drives[ident], ids.enclosure(view.name)
    return resource(
        f"{home}/Drives/{ident}",
        "Drive.v1_22_0",
        ident,
        label(part, ident),
        CapacityBytes=whole(part, "capacity_bytes"),
        MediaType=word(part, "type", _MEDIA),
        Protocol=word(part, "protocol", _PROTOCOLS),
        FirmwareVersion=plain(part.firmware),
        Status=present(part),
        **maker(part),
        **({"PhysicalLocation": slot(part)["Location"]} if plain(part.slot) else {}),
        Links={
            "Chassis": link(home),
            "Storage": link(f"{ids.system(view.name)}/Storage/{found.homes[ident]}"),
        },
    )


ROUTES = (
    Route(template=f"{SYSTEMS}/{{system}}/Storage", get=storages, rights={"GET": READ}),
    Route(template=f"{SYSTEMS}/{{system}}/Storage/{{storage}}", get=storage, rights={"GET": READ}),
    Route(template=f"{CHASSIS}/{{chassis}}/Drives", get=drives, rights={"GET": READ}),
    Route(template=f"{CHASSIS}/{{chassis}}/Drives/{{drive}}", get=drive, rights={"GET": READ}),
)
