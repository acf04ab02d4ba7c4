"""Health checks, the policy, and how nodes are."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.core.texts import ListOf
from strata.platform.health.records import Checked, CheckRun, HealthPolicy
from strata.platform.health.service import HealthService

_TAG = "health"
_CHECKS = Named("/v1/health-checks", HealthService, "health_check", tag=_TAG, kind="health", current=HealthService.one)


@post("/v1/node-health/check", tags=[_TAG], status_code=200, **needs("create", "health", 404, 409, body=True))
async def run_health_checks(ask: Asked, data: JSONBody[CheckRun]) -> ListOf[Checked]:
    """Run the checks of up to 1000 nodes now, and wait for what comes of it."""
    return ListOf(items=tuple(await ask.of(HealthService).run(ask.who, data.select)))


@get("/v1/health-policy", tags=[_TAG], **needs("read", "health"))
async def show_health_policy(ask: Asked) -> HealthPolicy:
    """What is done about nodes with the desire health=ok that fail."""
    return ask.of(HealthService).policy


HANDLERS = [
    _CHECKS.list(HealthService.checks),
    _CHECKS.show(HealthService.one),
    _CHECKS.put(HealthService.put),
    _CHECKS.delete(HealthService.delete),
    _CHECKS.routes.get("list_node_health", "/v1/node-health", HealthService.nodes, 404, select=Select),
    run_health_checks,
    show_health_policy,
    _CHECKS.routes.put("put_health_policy", "/v1/health-policy", HealthService.set_policy, "change"),
]
