"""Rollouts over REST."""

from __future__ import annotations

from strata.api.named import Named
from strata.platform.rollouts.records import PauseRequest
from strata.platform.rollouts.service import RolloutService

_ROLLOUTS = Named("/v1/rollouts", RolloutService, "rollout", tag="rollouts")
_ROLLOUTS.list(RolloutService.all)
_ROLLOUTS.show(RolloutService.one)
_ROLLOUTS.routes.put("start_rollout", "/v1/rollouts/{name:str}", RolloutService.begin, "create", 404, 409)
_ROLLOUTS.routes.post(
    "pause_rollout", "/v1/rollouts/{name:str}/pause", RolloutService.pause, "change", 404, 409, data=PauseRequest
)
_ROLLOUTS.routes.post("resume_rollout", "/v1/rollouts/{name:str}/resume", RolloutService.resume, "change", 404, 409)
_ROLLOUTS.routes.post("abort_rollout", "/v1/rollouts/{name:str}/abort", RolloutService.abort, "change", 404, 409)
_ROLLOUTS.routes.post("plan_rollout", "/v1/rollout-plans", RolloutService.plan, "read", 404, 409)
_ROLLOUTS.routes.post("twin_for_rollout", "/v1/rollout-twins", RolloutService.twin, "read", 404, 409)
_ROLLOUTS.routes.get("show_rollout_policy", "/v1/rollout-policy", RolloutService.policy, 404)
