"""Configuration: what one would change, applying it, and the branch that is followed."""

from __future__ import annotations

from litestar import delete, get, post, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked
from strata.platform.config.records import (
    ApplyOrder,
    Approval,
    ConfigDone,
    ConfigPlan,
    ConfigStatus,
    HeldDocuments,
    Pause,
    PlanOrder,
    WatchSpec,
)
from strata.platform.config.service import ConfigService

_TAG = "config"


@get("/v1/config", tags=[_TAG], **needs("read", "config"))
async def config_status(ask: Asked) -> ConfigStatus:
    """What was applied, which branch is followed, and what waits."""
    return await ask.of(ConfigService).status(ask.who)


@post("/v1/config/export", tags=[_TAG], status_code=200, **needs("change", "config", 404))
async def export_config(ask: Asked) -> HeldDocuments:
    """Overlays, encrypted secrets and what images are made of, as they are in force: for writing a repository anew. For
    those who may apply one."""
    return await ask.of(ConfigService).held(ask.who)


@post("/v1/config/plan", tags=[_TAG], status_code=200, **needs("read", "config", 404, 409, body=True))
async def plan_config(ask: Asked, data: JSONBody[PlanOrder]) -> ConfigPlan:
    """What applying a configuration would change, what would then be done to nodes, and whether in waves. Changes
    nothing."""
    return await ask.of(ConfigService).plan(ask.who, data.configuration, data.way)


@post("/v1/config/apply", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def apply_config(ask: Asked, data: JSONBody[ApplyOrder]) -> ConfigDone:
    """Make the fleet's description be what a configuration says; or begin to, where nodes are to get there in waves."""
    return await ask.of(ConfigService).apply(ask.who, data.configuration, remove_most=data.remove_most, way=data.way)


@get("/v1/config/pending", tags=[_TAG], **needs("read", "config", 404, 409))
async def pending_config(ask: Asked) -> ConfigPlan:
    """What the commit of the branch that waits would change."""
    return await ask.of(ConfigService).pending(ask.who)


@put("/v1/config/watch", tags=[_TAG], **needs("change", "config", 409, body=True))
async def watch_config(ask: Asked, data: JSONBody[WatchSpec]) -> ConfigStatus:
    """Follow a branch."""
    return await ask.of(ConfigService).watch(ask.who, data)


@delete("/v1/config/watch", tags=[_TAG], **needs("delete", "config", 404, 409))
async def unwatch_config(ask: Asked) -> None:
    """Follow no branch any more. What was applied stays."""
    await ask.of(ConfigService).unwatch(ask.who)


@post("/v1/config/watch/pause", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def pause_config(ask: Asked, data: JSONBody[Pause]) -> ConfigStatus:
    """Apply nothing of the branch until further notice; with an empty reason: go on."""
    return await ask.of(ConfigService).pause(ask.who, data)


@post("/v1/config/watch/approve", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def approve_config(ask: Asked, data: JSONBody[Approval]) -> ConfigStatus:
    """Let the commit that waits be applied, at once."""
    return await ask.of(ConfigService).approve(ask.who, data)


@post("/v1/config/watch/look", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409))
async def look_config(ask: Asked) -> ConfigStatus:
    """Look at the branch now: for a hook of the repository."""
    return await ask.of(ConfigService).look(ask.who)
