"""The workload manager's queue, as power policies go by it."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.power.queue.service import PowerQueue

_ROUTES = Routes(PowerQueue, "power-queue", tag="power")
_ROUTES.get("show_queue", "/v1/power/queue", PowerQueue.queue)
_ROUTES.post("tell_queue", "/v1/power/queue", PowerQueue.tell, "change")
