"""Health checks, the policy, and how nodes are."""

from __future__ import annotations

from strata.api.named import Named
from strata.api.services import Select
from strata.platform.health.records import CheckRun
from strata.platform.health.service import HealthService

_TAG = "health"
_CHECKS = Named("/v1/health-checks", HealthService, "health_check", tag=_TAG, kind=_TAG, current=HealthService.one)


_CHECKS.list(HealthService.checks)
_CHECKS.show(HealthService.one)
_CHECKS.put(HealthService.put)
_CHECKS.delete(HealthService.delete)
_CHECKS.routes.get("list_node_health", "/v1/node-health", HealthService.nodes, 404, select=Select)
_CHECKS.routes.post("run_health_checks", "/v1/node-health/check", HealthService.run, "create", 404, 409, data=CheckRun)
_CHECKS.routes.get("show_health_policy", "/v1/health-policy", HealthService.show_policy)
_CHECKS.routes.put("put_health_policy", "/v1/health-policy", HealthService.set_policy, "change")
