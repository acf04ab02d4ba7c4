"""Accelerators of nodes."""

from __future__ import annotations

from litestar import get

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import ListOf
from strata.jobs.accelerators.records import AcceleratorClass
from strata.jobs.accelerators.service import AcceleratorService


@get("/v1/accelerators", tags=["accelerators"], **needs("read", "hardware"))
async def list_accelerators(ask: Asked) -> ListOf[AcceleratorClass]:
    """Accelerators of nodes, as their agents told, by model: which nodes have how many, and whether the driver runs."""
    return await ask.of(AcceleratorService).all(ask.who)
