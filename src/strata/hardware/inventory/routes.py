"""What hardware there is: discovery, BMCs, components, history, conflicts."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from strata.api.http import finite, seal, unseal
from strata.api.rights import needs
from strata.api.services import Asked, Cursor, Limit, NodePath, OperationPath, Select, Time
from strata.core.texts import PLAIN, ListOf
from strata.fleet.operations.records import Operation
from strata.hardware.discovery.records import DiscoverRequest, DiscoveryReport
from strata.hardware.inventory.records import (
    BmcHardware,
    BmcPage,
    ComponentKind,
    ComponentPage,
    ComponentQuery,
    HardwareChange,
    HardwareConflict,
    NodeHardware,
)
from strata.hardware.inventory.service import InventoryService

_TAG = "hardware"

At = Annotated[str, QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="The BMC's address.")]
OfKind = Annotated[ComponentKind | None, QueryParameter(name="kind", description="Only components of this kind.")]
Text = Annotated[
    str | None,
    QueryParameter(pattern=PLAIN, max_length=128, description="Part of a name, model, part number or serial."),
]


@post("/v1/hardware/discover", tags=[_TAG], status_code=202, **needs("create", "hardware", 409, body=True))
async def discover(ask: Asked, data: JSONBody[DiscoverRequest]) -> Operation:
    """Look for BMCs, and record their hardware. An operation: follow it at `/v1/operations/{operation}`."""
    return await ask.of(InventoryService).discover(ask.who, data)


@get("/v1/hardware/discover/{operation:str}", tags=[_TAG], **needs("read", "hardware", 404))
async def show_discovery(ask: Asked, operation: OperationPath) -> DiscoveryReport:
    """What a discovery has come to so far."""
    return await ask.of(InventoryService).discovery(ask.who, operation)


@get("/v1/hardware/bmcs", tags=[_TAG], **needs("read", "hardware"))
async def list_bmcs(ask: Asked, limit: Limit = 1000, cursor: Cursor = None) -> BmcPage:
    """Discovered BMCs, by address."""
    page = await ask.of(InventoryService).bmcs(ask.who, limit, unseal(cursor))
    return replace(page, next=seal(page.next or None))


@get("/v1/hardware/bmc", tags=[_TAG], **needs("read", "hardware", 404))
async def show_bmc(ask: Asked, address: At) -> BmcHardware:
    """One BMC with all its parts."""
    return await ask.of(InventoryService).bmc(ask.who, address)


@delete("/v1/hardware/bmc", tags=[_TAG], **needs("delete", "hardware", 404))
async def forget_bmc(ask: Asked, address: At) -> None:
    """Remove a BMC from the inventory. Its history stays; nodes stay."""
    await ask.of(InventoryService).forget(ask.who, address)


@get("/v1/nodes/{name:str}/hardware", tags=[_TAG], **needs("read", "hardware", 404))
async def node_hardware(ask: Asked, name: NodePath) -> NodeHardware:
    """What a node is made of."""
    return await ask.of(InventoryService).of_node(ask.who, name)


@get("/v1/hardware/components", tags=[_TAG], **needs("read", "hardware", 404))
async def list_components(
    ask: Asked,
    select: Select = "*",
    of_kind: OfKind = None,
    text: Text = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> ComponentPage:
    """Components of the selected nodes (of all BMCs, by default)."""
    query = ComponentQuery(select=select, kind=of_kind or "", text=text or "", limit=limit, after=unseal(cursor))
    page = await ask.of(InventoryService).components(ask.who, query)
    return replace(page, next=seal(page.next or None))


@get("/v1/hardware/history", tags=[_TAG], **needs("read", "hardware", 404))
async def show_history(
    ask: Asked, select: Select = "*", since: Time = None, limit: Limit = 100
) -> ListOf[HardwareChange]:
    """What was added, removed, swapped or moved; newest first."""
    found = await ask.of(InventoryService).history(ask.who, select, finite(since, "since"), limit)
    return ListOf(items=tuple(found))


@get("/v1/hardware/conflicts", tags=[_TAG], **needs("read", "hardware"))
async def list_conflicts(ask: Asked) -> ListOf[HardwareConflict]:
    """What does not fit together: duplicates, swapped BMCs, two machines in one place."""
    return ListOf(items=tuple(await ask.of(InventoryService).conflicts(ask.who)))
