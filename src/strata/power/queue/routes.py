"""The workload manager's queue, as power policies go by it."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked
from strata.power.queue.records import QueueTold, QueueView
from strata.power.queue.service import PowerQueue

_TAG = "power"


@get("/v1/power/queue", tags=[_TAG], **needs("read", "power-queue"))
async def show_queue(ask: Asked) -> QueueView:
    """Which jobs wait and how long those that run still may, as it was last told, and whether policies go by it."""
    return await ask.of(PowerQueue).queue(ask.who)


@post("/v1/power/queue", tags=[_TAG], status_code=200, **needs("change", "power-queue", body=True))
async def tell_queue(ask: Asked, data: JSONBody[QueueTold]) -> QueueView:
    """Tell of the whole queue. It replaces what was told before, and is not gone by after `good_for` seconds."""
    return await ask.of(PowerQueue).tell(ask.who, data)
