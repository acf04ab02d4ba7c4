"""Rack PDUs and their outlets, as far as discovery found any."""

from __future__ import annotations

from collections.abc import Sequence

from strata.api.redfish.protocol.route import Call, Json, Routes, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import known, label, maker, plain, status, word
from strata.api.redfish.resources.ids import POWER_EQUIPMENT
from strata.api.redfish.resources.managers import bmcs
from strata.api.redfish.resources.needs import READ_HARDWARE
from strata.core.errors import NotFound
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import ComponentView
from strata.hardware.inventory.service import InventoryService

_PDUS = f"{POWER_EQUIPMENT}/RackPDUs"

ROUTES = Routes()


@ROUTES.get(POWER_EQUIPMENT, READ_HARDWARE)
async def equipment(call: Call) -> Json:
    """What gives the machine its power."""
    return resource(
        POWER_EQUIPMENT, "PowerEquipment", "Power equipment", Status=status("Enabled"), RackPDUs=link(_PDUS)
    )


async def _all(call: Call) -> Sequence[ComponentView]:
    """The parts of every BMC that has PDUs: few, of all that there are."""

    async def ask() -> Sequence[ComponentView]:
        found: list[ComponentView] = []
        for item in await bmcs(call):
            if item.components.get("pdu"):
                found += (await call.of(InventoryService).bmc(call.who, item.address)).components
        return found

    return (
        await live.kept(call).get(("pdus", call.who.scope), ask) if call.services.find(BmcService) is not None else ()
    )


async def _pdus(call: Call) -> dict[str, ComponentView]:
    found = [part for part in await _all(call) if part.kind == "pdu"]
    return ids.named(found, lambda part: part.name or ids.last_part(part.id))


@ROUTES.members(f"{_PDUS}/{{PDU}}", "PowerDistribution", "Rack PDUs", READ_HARDWARE, _pdus)
async def _pdu(call: Call, path: str, part: ComponentView) -> Json:
    return resource(
        path,
        "PowerDistribution",
        label(part, path),
        EquipmentType="RackPDU",
        Status=status("Enabled", part.health),
        Outlets=link(f"{path}/Outlets"),
        **maker(part),
        **known({"FirmwareVersion": plain(part.firmware)}),
    )


async def _outlets(call: Call) -> dict[str, ComponentView]:
    pdu = (await _pdus(call)).get(call.params["PDU"])
    if pdu is None:
        raise NotFound("no such PDU", where=call.params["PDU"][:80])
    return ids.by_last_part(
        part
        for part in await _all(call)
        if part.kind == "outlet" and part.bmc == pdu.bmc and (part.parent == pdu.id or part.id.startswith(f"{pdu.id}/"))
    )


@ROUTES.members(f"{_PDUS}/{{PDU}}/Outlets/{{outlet}}", "Outlet", "Outlets", READ_HARDWARE, _outlets)
async def _outlet(call: Call, path: str, part: ComponentView) -> Json:
    """As it was when it was looked at."""
    power = word(part, "power", ("On", "Off"))
    return resource(path, "Outlet", label(part, path), PowerState=power, Status=status("Enabled", part.health))
