"""Who manages: Strata itself, and the controllers that it discovered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import strata
from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import ENABLED, plain, resource, status, uuid, when
from strata.api.redfish.resources.ids import MANAGERS, SERVICE_MANAGER
from strata.api.redfish.resources.needs import READ, READ_AUDIT, READ_HARDWARE
from strata.core.errors import NotFound
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import BmcSummary
from strata.hardware.inventory.service import InventoryService

_SELF = f"{MANAGERS}/{SERVICE_MANAGER}"
_PAGE = 1000


async def controllers(call: Call) -> Sequence[BmcSummary]:
    """Every controller that was discovered and that the caller may see."""
    if call.services.find(BmcService) is None or not call.who.may(READ_HARDWARE):
        return ()

    async def ask() -> Sequence[BmcSummary]:
        found: list[BmcSummary] = []
        after = ""
        while True:
            page = await call.of(InventoryService).bmcs(call.who, _PAGE, after)
            found += page.items
            if not page.next:
                return found
            after = page.next
            await asyncio.sleep(0)  # there may be a hundred thousand, and others want something too

    return await live.kept(call).get(("controllers", call.who.scope), ask)


async def managers(call: Call) -> Json:
    """All of them."""
    members = [_SELF, *[ids.manager(item.address) for item in await controllers(call)]]
    return collection(MANAGERS, "Manager", "Strata and the controllers that it knows", members)


async def manager(call: Call) -> Json:
    """Strata itself, or one controller."""
    ident = call.params["manager"]
    return _service(call) if ident == SERVICE_MANAGER else await _controller(call, ident)


def _service(call: Call) -> Json:
    found = resource(
        _SELF,
        "Manager.v1_24_0",
        SERVICE_MANAGER,
        "Strata",
        Description="The cluster manager that presents this service",
        ManagerType="Service",
        Model="Strata",
        FirmwareVersion=strata.__version__,
        DateTime=when(time.time()),
        DateTimeLocalOffset="+00:00",
        Status=dict(ENABLED),
        NetworkProtocol=link(f"{_SELF}/NetworkProtocol"),
    )
    if call.who.may(READ_AUDIT):
        found["LogServices"] = link(f"{_SELF}/LogServices")
    return found


async def _controller(call: Call, ident: str) -> Json:
    summary = await controller_at(call, ident)
    identity = summary.identity
    return resource(
        f"{MANAGERS}/{ident}",
        "Manager.v1_24_0",
        ident,
        plain(f"Controller at {summary.address}") or ident,
        Description=plain(f"Last looked at {when(summary.seen)}. " + "; ".join(summary.trouble)),
        ManagerType="BMC",
        Manufacturer=plain(identity.vendor),
        Model=plain(identity.model),
        SerialNumber=plain(identity.serial),
        UUID=uuid(identity.uuid),
        FirmwareVersion=plain(identity.firmware),
        Status=status("Enabled", "warning" if summary.trouble else "ok"),
        Links={
            "ManagerForServers": [link(ids.system(node)) for node in summary.nodes],
            "ManagerForChassis": [link(ids.enclosure(node)) for node in summary.nodes],
            "ManagedBy": [link(_SELF)],
        },
    )


async def controller_at(call: Call, ident: str) -> BmcSummary:
    """The controller that an id names."""
    address = ids.address_of(ident)
    if not address:
        raise NotFound("no such manager", where=ident[:80])
    call.who.require(READ_HARDWARE)
    return (await call.of(InventoryService).bmc(call.who, address)).summary


async def network(call: Call) -> Json:
    """How Strata itself is reached."""
    base = urlsplit(call.base)
    return resource(
        f"{_SELF}/NetworkProtocol",
        "ManagerNetworkProtocol.v1_12_0",
        "NetworkProtocol",
        "How Strata is reached",
        HostName=plain(base.hostname or ""),
        HTTP={"ProtocolEnabled": False, "Port": None},
        HTTPS={"ProtocolEnabled": True, "Port": base.port or 443},
        Status=dict(ENABLED),
    )


ROUTES = (
    Route(template=MANAGERS, get=managers, rights={"GET": READ}),
    Route(template=f"{MANAGERS}/{{manager}}", get=manager, rights={"GET": READ}),
    Route(template=f"{_SELF}/NetworkProtocol", get=network, rights={"GET": READ}),
)
