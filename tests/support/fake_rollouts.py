"""Rollouts as the API's tests meet them: kept in memory, and none of them ever gets on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from strata.core.errors import Conflict, NotFound
from strata.fleet.access.principal import Principal
from strata.platform.rollouts.likeness import Twin
from strata.platform.rollouts.records import (
    AbortRequest,
    RolloutCounts,
    RolloutPlan,
    RolloutSpec,
    RolloutView,
    State,
)
from strata.platform.rollouts.service import RolloutService


class FakeRollouts:
    """Answers as ``RolloutService`` does, for a fleet without nodes."""

    def __init__(self) -> None:
        self._views: dict[str, RolloutView] = {}

    async def all(self, who: Principal) -> Sequence[RolloutView]:
        return list(self._views.values())

    async def one(self, who: Principal, name: str) -> RolloutView:
        if name not in self._views:
            raise NotFound(f"no such rollout: {name}", where="rollout")
        return self._views[name]

    async def plan(self, who: Principal, spec: RolloutSpec) -> RolloutPlan:
        return RolloutPlan(
            nodes=0, unchanged=0, waves=(), buckets=(), classes=(), disrupted=0, seconds=0.0, warnings=()
        )

    async def twin(self, who: Principal, spec: RolloutSpec) -> Twin:
        return Twin(spec=spec, nodes=(), groups={}, classes=(), budgets=(), seconds={}, failure_rate=0.0, left_out=())

    async def begin(self, who: Principal, name: str, spec: RolloutSpec) -> RolloutView:
        if name in self._views:
            raise Conflict("there is a rollout of that name", where=f"rollout {name}")
        self._views[name] = view = RolloutView(
            name=name,
            state="running",
            author=who.name,
            started=1.0,
            ended=None,
            spec=spec,
            wave=1,
            waves=1,
            counts=RolloutCounts(),
            waits_for="",
            reason="",
            buckets=(),
            events=(),
        )
        return view

    async def pause(self, who: Principal, name: str, reason: str) -> RolloutView:
        return await self._change(who, name, "paused", reason)

    async def resume(self, who: Principal, name: str) -> RolloutView:
        return await self._change(who, name, "running", "")

    async def abort(self, who: Principal, name: str, request: AbortRequest) -> RolloutView:
        return await self._change(who, name, "aborted", request.reason)

    async def _change(self, who: Principal, name: str, state: State, reason: str) -> RolloutView:
        view = await self.one(who, name)
        if view.state in (state, "aborted"):
            raise Conflict(f"it is {view.state}", where=f"rollout {name}")
        self._views[name] = msgspec.structs.replace(view, state=state, reason=reason)
        return self._views[name]


def fake_rollouts() -> RolloutService:
    """For whoever asks for the service."""
    return cast("RolloutService", FakeRollouts())
