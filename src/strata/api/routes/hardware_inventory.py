"""What hardware there is: discovery, controllers, components, history, conflicts."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post
from litestar.params import JSONBody, QueryParameter

from strata.api.http import finite, seal, unseal
from strata.api.rights import needs
from strata.api.services import Asked, Cursor, JobPath, Limit, NodePath, Select, Time
from strata.control.fleet_views.jobs import JobView
from strata.control.machine_views.discovery import DiscoverRequest, DiscoveryReport
from strata.control.machine_views.inventory import (
    ComponentQuery,
    ComponentView,
    ControllerSummary,
    ControllerView,
    HardwareChange,
    HardwareConflict,
    NodeHardware,
)
from strata.control.texts import PLAIN, Out
from strata.hardware.inventory.found import ComponentKind

_TAG = "hardware"

At = Annotated[
    str, QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="The controller's address.")
]
OfKind = Annotated[ComponentKind | None, QueryParameter(name="kind", description="Only components of this kind.")]
Text = Annotated[
    str | None,
    QueryParameter(pattern=PLAIN, max_length=128, description="Part of a name, model, part number or serial."),
]


class Controllers(Out, frozen=True, kw_only=True):
    """Some controllers, by address."""

    items: tuple[ControllerSummary, ...]
    next: str | None
    total: int


class Components(Out, frozen=True, kw_only=True):
    """Some components. A page may be short although there are more: go on while there is a ``next``."""

    items: tuple[ComponentView, ...]
    next: str | None


class Changes(Out, frozen=True, kw_only=True):
    """What has changed, newest first."""

    items: tuple[HardwareChange, ...]


class Conflicts(Out, frozen=True, kw_only=True):
    """What does not fit together."""

    items: tuple[HardwareConflict, ...]


@post("/v1/hardware/discover", tags=[_TAG], status_code=202, **needs("create", "hardware", 409, body=True))
async def discover(ask: Asked, data: JSONBody[DiscoverRequest]) -> JobView:
    """Look for controllers, and write down what they are made of. A job: follow it at `/v1/jobs/{job}`."""
    return await ask.machine.inventory.discover(ask.who, data)


@get("/v1/hardware/discover/{job:str}", tags=[_TAG], **needs("read", "hardware", 404))
async def show_discovery(ask: Asked, job: JobPath) -> DiscoveryReport:
    """What a discovery has come to so far."""
    return await ask.machine.inventory.discovery(ask.who, job)


@get("/v1/hardware/controllers", tags=[_TAG], **needs("read", "hardware"))
async def list_controllers(ask: Asked, limit: Limit = 1000, cursor: Cursor = None) -> Controllers:
    """Discovered controllers, by address."""
    page = await ask.machine.inventory.controllers(ask.who, limit, unseal(cursor))
    return Controllers(items=page.items, next=seal(page.next or None), total=page.total)


@get("/v1/hardware/controller", tags=[_TAG], **needs("read", "hardware", 404))
async def show_controller(ask: Asked, address: At) -> ControllerView:
    """One controller with all its parts."""
    return await ask.machine.inventory.controller(ask.who, address)


@delete("/v1/hardware/controller", tags=[_TAG], **needs("delete", "hardware", 404))
async def forget_controller(ask: Asked, address: At) -> None:
    """Remove a controller from the inventory. Its history stays; nodes stay."""
    await ask.machine.inventory.forget(ask.who, address)


@get("/v1/nodes/{name:str}/hardware", tags=[_TAG], **needs("read", "hardware", 404))
async def node_hardware(ask: Asked, name: NodePath) -> NodeHardware:
    """What a node is made of."""
    return await ask.machine.inventory.of_node(ask.who, name)


@get("/v1/hardware/components", tags=[_TAG], **needs("read", "hardware", 404))
async def list_components(
    ask: Asked,
    select: Select = "*",
    of_kind: OfKind = None,
    text: Text = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> Components:
    """Components of the selected nodes (of all controllers, by default)."""
    query = ComponentQuery(select=select, kind=of_kind or "", text=text or "", limit=limit, after=unseal(cursor))
    page = await ask.machine.inventory.components(ask.who, query)
    return Components(items=page.items, next=seal(page.next or None))


@get("/v1/hardware/history", tags=[_TAG], **needs("read", "hardware", 404))
async def show_history(ask: Asked, select: Select = "*", since: Time = None, limit: Limit = 100) -> Changes:
    """What was added, removed, swapped or moved; newest first."""
    found = await ask.machine.inventory.history(ask.who, select, finite(since, "since"), limit)
    return Changes(items=tuple(found))


@get("/v1/hardware/conflicts", tags=[_TAG], **needs("read", "hardware"))
async def list_conflicts(ask: Asked) -> Conflicts:
    """What does not fit together: duplicates, swapped controllers, two machines in one place."""
    return Conflicts(items=tuple(await ask.machine.inventory.conflicts(ask.who)))


HANDLERS = [
    discover,
    show_discovery,
    list_controllers,
    show_controller,
    forget_controller,
    node_hardware,
    list_components,
    show_history,
    list_conflicts,
]
