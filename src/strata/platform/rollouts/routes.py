"""Rollouts over REST."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.platform.rollouts.records import PauseRequest, RolloutView
from strata.platform.rollouts.service import RolloutService

_TAG = "rollouts"
_ROLLOUTS = Named("/v1/rollouts", RolloutService, "rollout", tag=_TAG)


@post("/v1/rollouts/{name:str}/pause", tags=[_TAG], status_code=200, **needs("change", "rollout", 404, 409, body=True))
async def pause_rollout(ask: Asked, name: NamePath, data: JSONBody[PauseRequest]) -> RolloutView:
    """Start no further nodes. Those that have begun are finished."""
    return await ask.of(RolloutService).pause(ask.who, name, data.reason)


HANDLERS = [
    _ROLLOUTS.list(RolloutService.all),
    _ROLLOUTS.show(RolloutService.one),
    _ROLLOUTS.routes.put("start_rollout", "/v1/rollouts/{name:str}", RolloutService.begin, "create", 404, 409),
    pause_rollout,
    _ROLLOUTS.routes.post(
        "resume_rollout", "/v1/rollouts/{name:str}/resume", RolloutService.resume, "change", 404, 409
    ),
    _ROLLOUTS.routes.post("abort_rollout", "/v1/rollouts/{name:str}/abort", RolloutService.abort, "change", 404, 409),
    _ROLLOUTS.routes.post("plan_rollout", "/v1/rollout-plans", RolloutService.plan, "read", 404, 409),
    _ROLLOUTS.routes.post("twin_for_rollout", "/v1/rollout-twins", RolloutService.twin, "read", 404, 409),
    _ROLLOUTS.routes.get("show_rollout_policy", "/v1/rollout-policy", RolloutService.policy, 404),
]
