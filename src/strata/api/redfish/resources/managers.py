"""Who manages: Strata itself, and the BMCs that it discovered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import strata
from strata.api.redfish.protocol.route import Call, Json, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import ENABLED, plain, status, uuid, when
from strata.api.redfish.resources.ids import AGGREGATES, MANAGERS, SERVICE_MANAGER, SYSTEMS
from strata.api.redfish.resources.needs import READ, READ_AUDIT, READ_HARDWARE
from strata.core.errors import BadRequest, NotFound
from strata.core.nodeset import fold
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import BmcSummary
from strata.hardware.inventory.service import InventoryService

_SELF = f"{MANAGERS}/{SERVICE_MANAGER}"
_PAGE = 1000
_MOST_TARGETS = 200_000

ROUTES = Routes()


async def bmcs(call: Call) -> Sequence[BmcSummary]:
    """Every BMC that was discovered and that the caller may see."""
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

    return await live.kept(call).get(("bmcs", call.who.scope), ask)


@ROUTES.get(MANAGERS, READ)
async def managers(call: Call) -> Json:
    members = [_SELF, *[ids.manager(item.address) for item in await bmcs(call)]]
    return collection(MANAGERS, "Manager", "Strata and the BMCs that it knows", members)


@ROUTES.get(f"{MANAGERS}/{{manager}}", READ)
async def manager(call: Call) -> Json:
    ident = call.params["manager"]
    return _service(call) if ident == SERVICE_MANAGER else await _bmc(call, ident)


def _service(call: Call) -> Json:
    found = resource(
        _SELF,
        "Manager",
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


async def _bmc(call: Call, ident: str) -> Json:
    summary = await bmc_at(call, ident)
    identity = summary.identity
    return resource(
        f"{MANAGERS}/{ident}",
        "Manager",
        plain(f"BMC at {summary.address}") or ident,
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


async def bmc_at(call: Call, ident: str) -> BmcSummary:
    """The BMC that an id names."""
    address = ids.address_of(ident)
    if not address:
        raise NotFound("no such manager", where=ident[:80])
    call.who.require(READ_HARDWARE)
    return (await call.of(InventoryService).bmc(call.who, address)).summary


@ROUTES.get(f"{_SELF}/NetworkProtocol", READ)
async def network(call: Call) -> Json:
    base = urlsplit(call.base)
    return resource(
        f"{_SELF}/NetworkProtocol",
        "ManagerNetworkProtocol",
        "How Strata is reached",
        HostName=plain(base.hostname or ""),
        HTTP={"ProtocolEnabled": False, "Port": None},
        HTTPS={"ProtocolEnabled": True, "Port": base.port or 443},
        Status=dict(ENABLED),
    )


# -- what clients name


async def selector(call: Call, uris: Sequence[object], where: str) -> str:
    """A selector of all nodes behind ``uris``; whether they exist is seen when it is used."""
    if not uris:
        raise BadRequest(
            "it names no resource", where=where, hint=f"name systems or aggregates, such as {SYSTEMS}/n0001"
        )
    if len(uris) > _MOST_TARGETS:
        raise BadRequest(f"{len(uris)} targets; at most {_MOST_TARGETS}", where=where, hint="make an aggregate of them")
    names: list[str] = []
    groups: list[str] = []
    for given in uris:
        path = given.get("@odata.id") if isinstance(given, dict) else given
        base, _, ident = (path.rstrip("/") if isinstance(path, str) else "").rpartition("/")
        if base == SYSTEMS:
            names.append(unquote(ident))
        elif base == AGGREGATES:
            groups.append(f"@{unquote(ident)}")
        elif base == MANAGERS:
            nodes = (await bmc_at(call, unquote(ident))).nodes
            if not nodes:
                raise BadRequest("this is not the BMC of a node", where=where)
            names += nodes
        else:
            raise BadRequest(
                f"{str(path)[:120]!r} is neither a computer system nor an aggregate",
                where=where,
                hint=f"such as {SYSTEMS}/n0001",
            )
    _check(names, where)
    return ",".join(filter(None, (fold(names), *groups)))


def _check(names: Sequence[str], where: str) -> None:
    """A name is a name here, not an expression: ``n*`` would be another set."""
    for name in names:
        if not name or not all(char.isalnum() or char in "_.-" for char in name):
            raise BadRequest(f"{name[:80]!r} is not the name of a node", where=where)
