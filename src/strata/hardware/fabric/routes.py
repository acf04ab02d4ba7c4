"""How things are cabled."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.core.texts import ListOf
from strata.hardware.fabric.records import FabricView, SwitchNodes
from strata.hardware.fabric.service import FabricService

_TAG = "fabric"


@get("/v1/fabric", tags=[_TAG], **needs("read", "hardware"))
async def show_fabric(ask: Asked) -> FabricView:
    """Switches, links, and what does not fit together."""
    return await ask.of(FabricService).graph(ask.who)


@get("/v1/fabric/near", tags=[_TAG], **needs("read", "hardware", 404))
async def near(ask: Asked, select: Select = "*") -> ListOf[SwitchNodes]:
    """Which of the selected nodes share a switch."""
    return ListOf(items=tuple(await ask.of(FabricService).near(ask.who, select)))
