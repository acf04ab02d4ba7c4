"""Rollouts over REST."""

from __future__ import annotations

from litestar import get, post, put
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.platform.rollouts.likeness import Twin
from strata.platform.rollouts.records import (
    AbortRequest,
    PauseRequest,
    RolloutPlan,
    RolloutPolicy,
    RolloutSpec,
    RolloutView,
)
from strata.platform.rollouts.service import RolloutService

_TAG = "rollouts"
_ROLLOUTS = Named("/v1/rollouts", RolloutService, "rollout", tag=_TAG)
_ROLLOUTS.list(RolloutService.all, "All rollouts, those that have ended too, the newest first.")
_ROLLOUTS.show(RolloutService.one, "One of them: how far it is, what it waits for, what happened.")


@get("/v1/rollout-policy", tags=[_TAG], **needs("read", "rollout", 404))
async def show_rollout_policy(ask: Asked) -> RolloutPolicy:
    """How commits of the configuration reach nodes in waves: what the repository says of it."""
    return await ask.of(RolloutService).policy(ask.who)


@put("/v1/rollouts/{name:str}", tags=[_TAG], **needs("create", "rollout", 404, 409, body=True))
async def start_rollout(ask: Asked, name: NamePath, data: JSONBody[RolloutSpec]) -> RolloutView:
    """Start a rollout. It goes on by itself, whichever controller dies."""
    return await ask.of(RolloutService).begin(ask.who, name, data)


@post("/v1/rollouts/{name:str}/pause", tags=[_TAG], status_code=200, **needs("change", "rollout", 404, 409, body=True))
async def pause_rollout(ask: Asked, name: NamePath, data: JSONBody[PauseRequest]) -> RolloutView:
    """Start no further nodes. Those that have begun are finished."""
    return await ask.of(RolloutService).pause(ask.who, name, data.reason)


@post("/v1/rollouts/{name:str}/resume", tags=[_TAG], status_code=200, **needs("change", "rollout", 404, 409))
async def resume_rollout(ask: Asked, name: NamePath) -> RolloutView:
    """Go on with one that is paused or stopped. Nodes that have failed go back, and do not count any more."""
    return await ask.of(RolloutService).resume(ask.who, name)


@post("/v1/rollouts/{name:str}/abort", tags=[_TAG], status_code=200, **needs("change", "rollout", 404, 409, body=True))
async def abort_rollout(ask: Asked, name: NamePath, data: JSONBody[AbortRequest]) -> RolloutView:
    """End one. Nodes that have not begun want what they wanted before; with ``rollback`` all do."""
    return await ask.of(RolloutService).abort(ask.who, name, data)


@post("/v1/rollout-plans", tags=[_TAG], status_code=200, **needs("read", "rollout", 404, 409, body=True))
async def plan_rollout(ask: Asked, data: JSONBody[RolloutSpec]) -> RolloutPlan:
    """What a rollout would do: its waves, its limits, its mutations, the time that it takes at the least."""
    return await ask.of(RolloutService).plan(ask.who, data)


@post("/v1/rollout-twins", tags=[_TAG], status_code=200, **needs("read", "rollout", 404, 409, body=True))
async def twin_for_rollout(ask: Asked, data: JSONBody[RolloutSpec]) -> Twin:
    """This cluster, as far as a simulation of the rollout needs it: what ``strata rollout simulate`` runs on."""
    return await ask.of(RolloutService).twin(ask.who, data)
