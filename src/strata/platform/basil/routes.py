"""BASIL's inventory."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked
from strata.platform.basil.records import BasilInventory
from strata.platform.basil.service import BasilService


@get("/v1/basil/inventory", tags=["workload"], **needs("read", "node"))
async def basil_inventory(ask: Asked) -> BasilInventory:
    """The machine as ALPS BASIL's inventory query tells of it, by class. The command `apbasil` makes XML of it."""
    return await ask.of(BasilService).inventory(ask.who)
