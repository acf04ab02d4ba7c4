"""Requests of people who want to keep machines off nodes: holds, freezes; and to give a faulted node another chance."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.distinct import among
from strata.core.errors import Conflict, Denied
from strata.core.node import Freeze
from strata.core.nodeset import fold
from strata.engine.progress import Wait
from strata.fleet.access.principal import Principal
from strata.fleet.brakes.records import HoldPage, HoldView
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.results import ManyResult
from strata.fleet.registry.editor import Done


class BrakeService:
    """Holds, freezes, retries."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def holds(self, who: Principal, limit: int = 1000, after: str = "") -> HoldPage:
        """Nodes that people took out of automation, by name."""
        fleet = self._fleet.visible(who)
        names = sorted(name for name in self._fleet.registry.brakes.holds if fleet.find(name) >= 0)
        rest = [name for name in names if name > after]
        items = tuple(HoldView.of(name, self._fleet.registry.brakes.holds[name]) for name in rest[:limit])
        return HoldPage(items=items, next=rest[limit - 1] if len(rest) > limit else None, total=len(names))

    async def hold(self, who: Principal, select: str, reason: str) -> ManyResult:
        """Take the selected nodes out of automation."""
        return await self._many(await self._fleet.edits.hold(self._fleet.owned(who, select), reason, who.name))

    async def release(self, who: Principal, select: str) -> ManyResult:
        """Release every selected node."""
        return await self._many(await self._fleet.edits.release(self._fleet.owned(who, select), who.name))

    async def retry(self, who: Principal, select: str) -> ManyResult:
        """Forget the failures and faults of the selected nodes and try them again now, as a new desire would."""
        nodes = self._fleet.owned(who, select)
        work = self._fleet.controller.engine.progress
        breakers = self._fleet.controller.engine.in_flight.breakers
        stopped = [number for number, breaker in enumerate(breakers) if breaker.stopped_since is not None]
        waiting = among(work.next[nodes], stopped)  # it failed elsewhere, and they are not even tried
        waiting |= work.wait[nodes] == Wait.BACKOFF  # what its step needs was not there
        troubled = nodes[(work.failures[nodes] > 0) | work.fault[nodes] | (work.relapses[nodes] > 0) | waiting]
        done = await self._fleet.edits.retry(troubled, who.name)
        return await self._many(done)

    async def freezes(self, who: Principal) -> Sequence[Freeze]:
        """Every freeze that touches the caller's scope."""
        freezes = sorted(self._fleet.registry.brakes.freezes.items())
        return [freeze for scope, freeze in freezes if self._fleet.touches(who, scope)]

    async def freeze(self, who: Principal, scope: str, reason: str) -> Freeze:
        """Start nothing more for the scope until it is thawed."""
        self._check_scope(who, scope)
        await self._fleet.settled(await self._fleet.edits.freeze(scope, reason, who.name))
        frozen = self._fleet.registry.brakes.freezes.get(scope)
        if frozen is None:
            raise Conflict("it was thawed at the same time", where=scope, hint="freeze it again if it should stand")
        return frozen

    async def thaw(self, who: Principal, scope: str) -> None:
        """Take a freeze off."""
        self._check_scope(who, scope)
        await self._fleet.settled(await self._fleet.edits.thaw(scope, who.name))

    async def _many(self, done: Done) -> ManyResult:
        nodeset = fold(self._fleet.view.names(done.nodes))  # before the wait: an index may be another node's after it
        await self._fleet.settled(done.revision)
        return ManyResult(changed=len(done.nodes), nodeset=nodeset, revision=done.revision)

    def _check_scope(self, who: Principal, scope: str) -> None:
        kind, _, name = scope.partition(":")
        if not who.scope or (kind == "group" and name in who.scope):
            return
        if kind == "node" and self._fleet.find(who, name) >= 0:
            return
        raise Denied(f"{scope[:80]} reaches beyond {', '.join(who.scope)}", where="scope")
