"""Requests of people who want to keep machines off nodes: holds, freezes; and to give a faulted node another chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strata.control.editor import Done
from strata.control.fleet_views.brakes import FreezeView, HoldPage, HoldView
from strata.control.fleet_views.results import ManyResult
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core.errors import Conflict, Denied
from strata.core.nodeset import fold
from strata.engine.work import Wait


class BrakeService(ServiceBase):
    """Holds, freezes, retries."""

    async def holds(self, who: Principal, limit: int, after: str) -> HoldPage:
        """Holds by node name."""
        fleet = self.fleet(who)
        names = sorted(name for name in self.registry.brakes.holds if fleet.find(name) >= 0)
        rest = [name for name in names if name > after]
        items = tuple(
            HoldView(node=name, reason=hold.reason, author=hold.author, since=hold.since)
            for name in rest[:limit]
            if (hold := self.registry.brakes.holds[name])
        )
        return HoldPage(items=items, next=rest[limit - 1] if len(rest) > limit else None, total=len(names))

    async def hold(self, who: Principal, select: str, reason: str) -> ManyResult:
        """Hold every selected node."""
        return await self._many(await self.edits.hold(self.owned(who, select), reason, who.name))

    async def release(self, who: Principal, select: str) -> ManyResult:
        """Release every selected node."""
        return await self._many(await self.edits.release(self.owned(who, select), who.name))

    async def retry(self, who: Principal, select: str) -> ManyResult:
        """Forget the failures of every selected node, so that it is tried again now."""
        nodes = self.owned(who, select)
        work = self.controller.engine.work
        breakers = self.controller.engine.courses.breakers
        stopped = [number for number, breaker in enumerate(breakers) if breaker.stopped_since is not None]
        waiting = np.isin(work.next[nodes], stopped)  # it failed elsewhere, and they are not even tried
        waiting |= work.wait[nodes] == Wait.BACKOFF  # what its step needs was not there
        troubled = nodes[(work.failures[nodes] > 0) | work.fault[nodes] | (work.relapses[nodes] > 0) | waiting]
        done = await self.edits.retry(troubled, who.name)
        return await self._many(done)

    async def freezes(self, who: Principal) -> Sequence[FreezeView]:
        """Every freeze that touches the caller's scope."""
        return [
            FreezeView(scope=f.scope, reason=f.reason, author=f.author, since=f.since)
            for scope, f in sorted(self.registry.brakes.freezes.items())
            if self.touches(who, scope)
        ]

    async def freeze(self, who: Principal, scope: str, reason: str) -> FreezeView:
        """Put the brake on."""
        self._check_scope(who, scope)
        await self.settled(await self.edits.freeze(scope, reason, who.name))
        frozen = self.registry.brakes.freezes.get(scope)
        if frozen is None:
            raise Conflict("it was thawed at the same time", where=scope, hint="freeze it again if it should stand")
        return FreezeView(scope=scope, reason=frozen.reason, author=frozen.author, since=frozen.since)

    async def thaw(self, who: Principal, scope: str) -> None:
        """Take it off."""
        self._check_scope(who, scope)
        await self.settled(await self.edits.thaw(scope, who.name))

    async def _many(self, done: Done) -> ManyResult:
        nodeset = fold(self.view.names(done.nodes))  # before the wait: an index may be another node's after it
        await self.settled(done.revision)
        return ManyResult(changed=len(done.nodes), nodeset=nodeset, revision=done.revision)

    def _check_scope(self, who: Principal, scope: str) -> None:
        kind, _, name = scope.partition(":")
        if not who.scope or (kind == "group" and name in who.scope):
            return
        if kind == "node" and self.find(who, name) >= 0:
            return
        raise Denied(f"{scope[:80]} reaches beyond {', '.join(who.scope)}", where="scope")
