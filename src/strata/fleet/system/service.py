"""What can be asked of the service itself: store, model, status."""

from __future__ import annotations

import time

import msgspec

import strata
from strata.engine import modelgraph
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.system import records as s


class SystemService:
    """The service."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def backup(self, who: Principal) -> s.BackupView:
        """Write a backup into the state directory."""
        self._fleet.need_whole_fleet(who, "a backup")
        folder = self._fleet.settings.backup_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"strata-{time.strftime('%Y%m%dT%H%M%S')}-{time.monotonic_ns() % 10**6:06d}.backup"
        revision = await self._fleet.controller.store.backup(path)
        await self._fleet.ledger.commit(who.name, "store.backup", path.name, [])
        return s.BackupView(path=str(path), revision=revision, bytes=path.stat().st_size)

    async def check_store(self, who: Principal) -> s.StoreCheck:
        """Look at every stored byte."""
        problems = await self._fleet.controller.store.check()
        revision = await self._fleet.controller.store.revision()
        return s.StoreCheck(ok=not problems, problems=tuple(problems), revision=revision)

    async def model(self) -> s.ModelView:
        """The declared world."""
        declared = msgspec.to_builtins(self._fleet.controller.model)
        return s.ModelView(**declared)

    async def model_graph(self) -> str:
        """The same as DOT text."""
        return modelgraph.dot(self._fleet.controller.model)

    async def status(self, who: Principal) -> s.StatusView:
        """The fleet and its controller at a glance (with a scope: the caller's part of it)."""
        controller, nodes = self._fleet.controller, self._fleet.seen(who, "*")
        holders = controller.leadership.holders
        shards = range(controller.settings.shards)
        unled = self._fleet.unled(nodes)
        return s.StatusView(
            version=strata.__version__,
            controller=controller.name,
            started=controller.started,
            nodes=len(nodes),
            by_state=controller.counts(nodes),
            queue=controller.queue(nodes if who.scope else None),
            shards=tuple(
                s.ShardView(shard=n, leader=holders.get(n, ("", 0))[0], epoch=holders.get(n, ("", 0))[1])
                for n in shards
            ),
            freezes=sum(self._fleet.touches(who, scope) for scope in self._fleet.registry.brakes.freezes),
            holds=int(self._fleet.registry.brakes.held[nodes].sum()),
            canaries=tuple(
                s.CanaryView(node=self._fleet.called(who, canary.node), waiting=canary.waiting)
                for canary in controller.engine.canaries.waiting(nodes)
            ),
            troubles=tuple(filter(None, (self.not_ready(), self._fleet.disk.trouble))),
            revision=controller.considered,
            unled=len(unled),
            layers=tuple(self._fleet.layers),
            as_of=controller.clock.to_wall(controller.leadership.seen) if len(unled) else None,
        )

    def not_ready(self) -> str:
        """Why requests would fail now, or empty."""
        return self._fleet.trouble
