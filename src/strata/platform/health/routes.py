"""Health checks, the policy, and how nodes are."""

from __future__ import annotations

from litestar import get, post, put
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.core.texts import ListOf
from strata.platform.health.records import Checked, CheckRun, HealthPolicy, NodeHealth
from strata.platform.health.service import HealthService

_TAG = "health"
_CHECKS = Named("/v1/health-checks", HealthService, "health_check", tag=_TAG, kind="health", current=HealthService.one)
_CHECKS.list(HealthService.checks, "All checks, and how many nodes fail each.")
_CHECKS.show(HealthService.one, "One of them, and which nodes fail it (the first 1000 of them).")
_CHECKS.put(
    HealthService.put,
    "Declare a check, or change it. The agents of the nodes that it selects run it from then on. `If-Match` is "
    "honoured.",
)
_CHECKS.delete(HealthService.delete, "Delete a check. `If-Match` is honoured.")


@get("/v1/node-health", tags=[_TAG], **needs("read", "health", 404))
async def list_node_health(ask: Asked, select: Select = "*") -> ListOf[NodeHealth]:
    """How nodes are, what each fails, and what was done about it within a day; as far as this controller hears them."""
    return ListOf(items=tuple(await ask.of(HealthService).nodes(ask.who, select)))


@post("/v1/node-health/check", tags=[_TAG], status_code=200, **needs("create", "health", 404, 409, body=True))
async def run_health_checks(ask: Asked, data: JSONBody[CheckRun]) -> ListOf[Checked]:
    """Run the checks of up to 1000 nodes now, and wait for what comes of it."""
    return ListOf(items=tuple(await ask.of(HealthService).run(ask.who, data.select)))


@get("/v1/health-policy", tags=[_TAG], **needs("read", "health"))
async def show_health_policy(ask: Asked) -> HealthPolicy:
    """What is done about nodes with the desire health=ok that fail."""
    return ask.of(HealthService).policy


@put("/v1/health-policy", tags=[_TAG], **needs("change", "health", body=True))
async def put_health_policy(ask: Asked, data: JSONBody[HealthPolicy]) -> HealthPolicy:
    """Have it done otherwise."""
    return await ask.of(HealthService).set_policy(ask.who, data)
