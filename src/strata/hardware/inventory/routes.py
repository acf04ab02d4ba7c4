"""What hardware there is: discovery, BMCs, components, history, conflicts."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter
from msgspec.structs import replace

from strata.api.http import seal, unseal
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, NodePath, OperationPath, Select, Time
from strata.core.texts import PLAIN
from strata.hardware.inventory.records import ComponentKind, ComponentPage, ComponentQuery
from strata.hardware.inventory.service import InventoryService

_TAG = "hardware"

At = Annotated[str, QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="The BMC's address.")]
OfKind = Annotated[ComponentKind | None, QueryParameter(name="kind", description="Only components of this kind.")]
Text = Annotated[
    str | None,
    QueryParameter(pattern=PLAIN, max_length=128, description="Part of a name, model, part number or serial."),
]


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


_ROUTES = Routes(InventoryService, "hardware", tag=_TAG)
_ROUTES.post("discover", "/v1/hardware/discover", InventoryService.discover, "create", 409, success=202)
_ROUTES.get(
    "show_discovery",
    "/v1/hardware/discover/{operation:str}",
    InventoryService.discovery,
    404,
    operation=OperationPath,
)
_ROUTES.get("list_bmcs", "/v1/hardware/bmcs", InventoryService.bmcs, limit=Limit, cursor=Cursor)
_ROUTES.get("show_bmc", "/v1/hardware/bmc", InventoryService.bmc, 404, address=At)
_ROUTES.delete("forget_bmc", "/v1/hardware/bmc", InventoryService.forget, 404, address=At)
_ROUTES.get("node_hardware", "/v1/nodes/{name:str}/hardware", InventoryService.of_node, 404, name=NodePath)
_ROUTES.get(
    "show_history", "/v1/hardware/history", InventoryService.history, 404, select=Select, since=Time, limit=Limit
)
_ROUTES.get("list_conflicts", "/v1/hardware/conflicts", InventoryService.conflicts)
