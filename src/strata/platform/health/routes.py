"""Health checks, the policy, and how nodes are."""

from __future__ import annotations

from litestar import get

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.platform.health.records import CheckRun, HealthPolicy
from strata.platform.health.service import HealthService

_TAG = "health"
_CHECKS = Named("/v1/health-checks", HealthService, "health_check", tag=_TAG, kind="health", current=HealthService.one)


@get("/v1/health-policy", tags=[_TAG], **needs("read", "health"))
async def show_health_policy(ask: Asked) -> HealthPolicy:
    """What is done about nodes with the desire health=ok that fail."""
    return ask.of(HealthService).policy


_CHECKS.list(HealthService.checks)
_CHECKS.show(HealthService.one)
_CHECKS.put(HealthService.put)
_CHECKS.delete(HealthService.delete)
_CHECKS.routes.get("list_node_health", "/v1/node-health", HealthService.nodes, 404, select=Select)
_CHECKS.routes.post("run_health_checks", "/v1/node-health/check", HealthService.run, "create", 404, 409, data=CheckRun)
_CHECKS.routes.put("put_health_policy", "/v1/health-policy", HealthService.set_policy, "change")
