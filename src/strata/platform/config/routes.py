"""Configuration: what one would change, applying it, and the branch that is followed."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.platform.config.records import ApplyOrder, PlanOrder
from strata.platform.config.service import ConfigService

_ROUTES = Routes(ConfigService, "config", tag="config")
_ROUTES.get("config_status", "/v1/config", ConfigService.status)
_ROUTES.post("export_config", "/v1/config/export", ConfigService.held, "change", 404)
_ROUTES.post("plan_config", "/v1/config/plan", ConfigService.plan, "read", 404, 409, data=PlanOrder)
_ROUTES.post("apply_config", "/v1/config/apply", ConfigService.apply, "change", 404, 409, data=ApplyOrder)
_ROUTES.get("pending_config", "/v1/config/pending", ConfigService.pending, 404, 409)
_ROUTES.put("watch_config", "/v1/config/watch", ConfigService.watch, "change", 409)
_ROUTES.delete("unwatch_config", "/v1/config/watch", ConfigService.unwatch, 404, 409)
_ROUTES.post("pause_config", "/v1/config/watch/pause", ConfigService.pause, "change", 404, 409)
_ROUTES.post("approve_config", "/v1/config/watch/approve", ConfigService.approve, "change", 404, 409)
_ROUTES.post("look_config", "/v1/config/watch/look", ConfigService.look, "change", 404, 409)
