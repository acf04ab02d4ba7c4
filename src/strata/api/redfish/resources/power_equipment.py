"""Rack PDUs and their outlets, as far as discovery found any."""

from __future__ import annotations

from collections.abc import Sequence

from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import known, label, maker, plain, present, resource, status, word
from strata.api.redfish.resources.ids import POWER_EQUIPMENT
from strata.api.redfish.resources.managers import controllers
from strata.api.redfish.resources.needs import READ_HARDWARE
from strata.core.errors import NotFound
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import ComponentView
from strata.hardware.inventory.service import InventoryService

_PDUS = f"{POWER_EQUIPMENT}/RackPDUs"


async def equipment(call: Call) -> Json:
    """What gives the machine its power."""
    return resource(
        POWER_EQUIPMENT,
        "PowerEquipment.v1_2_3",
        "PowerEquipment",
        "Power equipment",
        Status=status("Enabled"),
        RackPDUs=link(_PDUS),
    )


async def _all(call: Call) -> Sequence[ComponentView]:
    """The parts of every controller that has PDUs: few, of all that there are."""

    async def ask() -> Sequence[ComponentView]:
        found: list[ComponentView] = []
        for item in await controllers(call):
            if item.components.get("pdu"):
                found += (await call.of(InventoryService).bmc(call.who, item.address)).components
        return found

    return (
        await live.kept(call).get(("pdus", call.who.scope), ask) if call.services.find(BmcService) is not None else ()
    )


async def _pdus(call: Call) -> dict[str, ComponentView]:
    found = [part for part in await _all(call) if part.kind == "pdu"]
    return ids.named(found, lambda part: part.name or ids.last_part(part.id))


async def _pdu(call: Call) -> ComponentView:
    found = (await _pdus(call)).get(call.params["pdu"])
    if found is None:
        raise NotFound("no such PDU", where=call.params["pdu"][:80])
    return found


async def _outlets(call: Call, pdu: ComponentView) -> dict[str, ComponentView]:
    mine = [
        part
        for part in await _all(call)
        if part.kind == "outlet"
        and part.controller == pdu.controller
        and (part.parent == pdu.id or part.id.startswith(f"{pdu.id}/"))
    ]
    return ids.named(mine, lambda part: ids.last_part(part.id))


async def pdus(call: Call) -> Json:
    """All rack PDUs."""
    found = await _pdus(call)
    return collection(_PDUS, "PowerDistribution", "Rack PDUs", [f"{_PDUS}/{ident}" for ident in found])


async def pdu(call: Call) -> Json:
    """One of them."""
    part, ident = await _pdu(call), call.params["pdu"]
    return resource(
        f"{_PDUS}/{ident}",
        "PowerDistribution.v1_6_0",
        ident,
        label(part, ident),
        EquipmentType="RackPDU",
        Status=present(part),
        Outlets=link(f"{_PDUS}/{ident}/Outlets"),
        **maker(part),
        **known({"FirmwareVersion": plain(part.firmware)}),
    )


async def outlets(call: Call) -> Json:
    """Its outlets."""
    part, path = await _pdu(call), f"{_PDUS}/{call.params['pdu']}/Outlets"
    return collection(path, "Outlet", "Outlets", [f"{path}/{ident}" for ident in await _outlets(call, part)])


async def outlet(call: Call) -> Json:
    """One of them, as it was when it was looked at."""
    found = await _outlets(call, await _pdu(call))
    ident = call.params["outlet"]
    if ident not in found:
        raise NotFound("no such outlet", where=ident[:80])
    part = found[ident]
    return resource(
        f"{_PDUS}/{call.params['pdu']}/Outlets/{ident}",
        "Outlet.v1_4_4",
        ident,
        label(part, ident),
        PowerState=word(part, "power", ("On", "Off")),
        Status=present(part),
    )


_RIGHTS = {"GET": READ_HARDWARE}

ROUTES = (
    Route(template=POWER_EQUIPMENT, get=equipment, rights=_RIGHTS),
    Route(template=_PDUS, get=pdus, rights=_RIGHTS),
    Route(template=f"{_PDUS}/{{pdu}}", get=pdu, rights=_RIGHTS),
    Route(template=f"{_PDUS}/{{pdu}}/Outlets", get=outlets, rights=_RIGHTS),
    Route(template=f"{_PDUS}/{{pdu}}/Outlets/{{outlet}}", get=outlet, rights=_RIGHTS),
)
