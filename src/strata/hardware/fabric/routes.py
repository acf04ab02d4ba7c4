"""How things are cabled."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.core.texts import Out
from strata.hardware.fabric.records import FabricView, SwitchNodes
from strata.hardware.fabric.service import FabricService

_TAG = "fabric"


class Near(Out, frozen=True, kw_only=True):
    """Nodes by the switch that they are on, most together first; those on no known switch under an empty name."""

    items: tuple[SwitchNodes, ...]


@get("/v1/fabric", tags=[_TAG], **needs("read", "hardware"))
async def show_fabric(ask: Asked) -> FabricView:
    """Switches, links, and what does not fit together."""
    return await ask.of(FabricService).graph(ask.who)


@get("/v1/fabric/near", tags=[_TAG], **needs("read", "hardware", 404))
async def near(ask: Asked, select: Select = "*") -> Near:
    """Which of the selected nodes share a switch."""
    return Near(items=tuple(await ask.of(FabricService).near(ask.who, select)))


HANDLERS = [show_fabric, near]
