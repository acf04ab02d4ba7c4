"""Configuration as the API's tests meet it: one that nothing was applied of, and a branch that is followed or not."""

from __future__ import annotations

from typing import cast

import msgspec

from strata.core.errors import NotFound
from strata.fleet.access.principal import Principal
from strata.platform.config.records import (
    Approval,
    ConfigDone,
    ConfigPlan,
    ConfigStatus,
    Configuration,
    Pause,
    WatchSpec,
    WatchView,
)
from strata.platform.config.service import ConfigService

_NOTHING = ConfigStatus(commit="", system="", author="", time=None, nodes=0)


class FakeConfig:
    """Answers as ``ConfigService`` does, for a fleet that needs no change."""

    def __init__(self) -> None:
        self._status = _NOTHING

    async def status(self, who: Principal) -> ConfigStatus:
        return self._status

    async def plan(self, who: Principal, configuration: Configuration) -> ConfigPlan:
        same = len(configuration.nodes)
        return ConfigPlan(commit=configuration.commit, system=configuration.system, changes=(), unchanged=same)

    async def apply(self, who: Principal, configuration: Configuration, *, remove_most: bool) -> ConfigDone:
        same = len(configuration.nodes)
        return ConfigDone(
            commit=configuration.commit, system=configuration.system, changes=(), unchanged=same, revision=1
        )

    async def pending(self, who: Principal) -> ConfigPlan:
        raise NotFound("no commit waits", where="config")

    async def watch(self, who: Principal, spec: WatchSpec) -> ConfigStatus:
        self._status = msgspec.structs.replace(self._status, watch=WatchView.of(spec, paused=""))
        return self._status

    async def unwatch(self, who: Principal) -> None:
        await self.look(who)
        self._status = _NOTHING

    async def pause(self, who: Principal, pause: Pause) -> ConfigStatus:
        return await self.look(who)

    async def approve(self, who: Principal, approval: Approval) -> ConfigStatus:
        raise NotFound("no commit waits", where="config")

    async def look(self, who: Principal) -> ConfigStatus:
        if self._status.watch is None:
            raise NotFound("no branch is followed", where="config")
        return self._status


def fake_config() -> ConfigService:
    """For whoever asks for the service."""
    return cast("ConfigService", FakeConfig())
