"""Firmware: what is installed, as discovery found it, and SimpleUpdate for many nodes at once."""

from __future__ import annotations

import msgspec

import strata
from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource, type_of
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import ENABLED, plain, service, status
from strata.api.redfish.resources.ids import MANAGERS, SERVICE_MANAGER, UPDATE
from strata.api.redfish.resources.managers import bmc_at, bmcs, selector
from strata.api.redfish.resources.needs import ACT, READ
from strata.api.redfish.resources.tasks import accepted
from strata.core.errors import BadRequest, NotFound
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.records import FirmwareUpdate
from strata.hardware.bmc.service import BmcService

_INVENTORY = f"{UPDATE}/FirmwareInventory"
_ACTION = f"{UPDATE}/Actions/UpdateService.SimpleUpdate"
_SYSTEM = "system-"
_APPLY_TIME = "@Redfish.OperationApplyTime"

ROUTES = Routes()


@ROUTES.get(UPDATE, READ)
async def _service(call: Call) -> Json:
    found = service(
        UPDATE,
        "Firmware updates",
        enabled=call.services.find(BmcService) is not None,
        FirmwareInventory=link(_INVENTORY),
    )
    if call.services.find(BmcService) is not None:
        found["Actions"] = {
            "#UpdateService.SimpleUpdate": {
                "target": _ACTION,
                "@Redfish.OperationApplyTimeSupport": {
                    "@odata.type": type_of("Settings", "OperationApplyTimeSupport"),
                    "SupportedValues": ["Immediate", "OnReset"],
                },
            }
        }
    return found


@ROUTES.get(_INVENTORY, READ)
async def inventory(call: Call) -> Json:
    """Strata, every BMC's firmware and every node's: names only."""
    members = [f"{_INVENTORY}/{SERVICE_MANAGER}"]
    found = await bmcs(call)
    members += [f"{_INVENTORY}/{ids.bmc_id(item.address)}" for item in found]
    members += [f"{_INVENTORY}/{_SYSTEM}{node}" for item in found for node in item.nodes]
    return collection(_INVENTORY, "SoftwareInventory", "Firmware", members)


@ROUTES.get(f"{_INVENTORY}/{{firmware}}", READ)
async def firmware(call: Call) -> Json:
    ident = call.params["firmware"]
    path = f"{_INVENTORY}/{ident}"
    if ident == SERVICE_MANAGER:
        return resource(
            path,
            "SoftwareInventory",
            "Strata",
            Version=strata.__version__,
            Updateable=False,
            Status=dict(ENABLED),
            RelatedItem=[link(f"{MANAGERS}/{SERVICE_MANAGER}")],
        )
    if ident.startswith(_SYSTEM):
        return await _firmware_of_node(call, ident.removeprefix(_SYSTEM), path)
    summary = await bmc_at(call, ident)
    return resource(
        path,
        "SoftwareInventory",
        plain(f"Firmware of the BMC at {summary.address}") or ident,
        Version=plain(summary.identity.firmware),
        Manufacturer=plain(summary.identity.vendor),
        Updateable=bool(summary.nodes),
        Status=status("Enabled"),
        RelatedItem=[link(f"{MANAGERS}/{ident}")],
    )


async def _firmware_of_node(call: Call, node: str, path: str) -> Json:
    view = await call.of(NodeService).node(call.who, node)
    hardware = await live.hardware(call, view.name)
    if hardware is None:
        raise NotFound("the hardware of this node was not discovered", where=node)
    machine = next((part for part in hardware.components if part.kind == "system"), None)
    return resource(
        path,
        "SoftwareInventory",
        f"Firmware of {view.name}",
        Version=plain(machine.firmware) if machine is not None else None,
        Manufacturer=plain(machine.vendor) if machine is not None else None,
        Updateable=True,
        Status=status("Enabled", machine.health if machine is not None else None),
        RelatedItem=[link(ids.system(view.name))],
    )


@ROUTES.post(_ACTION, ACT)
async def simple_update(call: Call) -> Reply:
    """Have the BMCs of the targets fetch an image: a task, some at a time, that stops when too many fail."""
    given = bodies.parameters(
        call, "UpdateService.SimpleUpdate", {"ImageURI": str, "Targets": list}, needed=("ImageURI", "Targets")
    )
    select = await selector(call, given["Targets"], "Targets")
    try:
        request = msgspec.convert(
            {"select": select, "uri": given["ImageURI"], "apply_time": given.get(_APPLY_TIME) or ""}, FirmwareUpdate
        )
    except msgspec.ValidationError as error:
        raise BadRequest(str(error), where="UpdateService.SimpleUpdate") from None
    if "://" not in request.uri:
        raise rejected(400, "ActionParameterValueFormatError", request.uri, "ImageURI", "UpdateService.SimpleUpdate")
    return accepted(await call.of(BmcService).update_firmware(call.who, request))
