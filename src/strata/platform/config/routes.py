"""Configuration: what one would change, applying it, and the branch that is followed."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.platform.config.records import ApplyOrder, ConfigDone, ConfigPlan, PlanOrder
from strata.platform.config.service import ConfigService

_TAG = "config"


@post("/v1/config/plan", tags=[_TAG], status_code=200, **needs("read", "config", 404, 409, body=True))
async def plan_config(ask: Asked, data: JSONBody[PlanOrder]) -> ConfigPlan:
    """What applying a configuration would change, what would then be done to nodes, and whether in waves. Changes
    nothing."""
    return await ask.of(ConfigService).plan(ask.who, data.configuration, data.way)


@post("/v1/config/apply", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def apply_config(ask: Asked, data: JSONBody[ApplyOrder]) -> ConfigDone:
    """Make the fleet's description be what a configuration says; or begin to, where nodes are to get there in waves."""
    return await ask.of(ConfigService).apply(ask.who, data.configuration, remove_most=data.remove_most, way=data.way)


_ROUTES = Routes(ConfigService, "config", tag=_TAG)

HANDLERS = [
    _ROUTES.get("config_status", "/v1/config", ConfigService.status),
    _ROUTES.post("export_config", "/v1/config/export", ConfigService.held, "change", 404),
    plan_config,
    apply_config,
    _ROUTES.get("pending_config", "/v1/config/pending", ConfigService.pending, 404, 409),
    _ROUTES.put("watch_config", "/v1/config/watch", ConfigService.watch, "change", 409),
    _ROUTES.delete("unwatch_config", "/v1/config/watch", ConfigService.unwatch, 404, 409),
    _ROUTES.post("pause_config", "/v1/config/watch/pause", ConfigService.pause, "change", 404, 409),
    _ROUTES.post("approve_config", "/v1/config/watch/approve", ConfigService.approve, "change", 404, 409),
    _ROUTES.post("look_config", "/v1/config/watch/look", ConfigService.look, "change", 404, 409),
]
