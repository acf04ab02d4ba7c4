"""Requests about the service itself: audit, store, model, status."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

import strata
from strata.control import service_views as s
from strata.control.principal import Principal
from strata.control.service_watch import WatchService
from strata.core.errors import BadRequest
from strata.engine import modelgraph
from strata.store.audit import AuditEntry, verify


class SystemService(WatchService):
    """The service."""

    async def audit(self, who: Principal, since: int, limit: int, after: str) -> s.AuditPage:
        """Audit records, oldest first."""
        self.need_whole_fleet(who, "the audit log")
        seen = _sequence_number(after) if after else max(0, since - 1)
        found = await self.ledger.entries(seen, limit + 1)
        items = tuple(map(_audit_view, found[:limit]))
        return s.AuditPage(items=items, next=str(items[-1].seq) if len(found) > limit else None)

    async def audit_latest(self, who: Principal, limit: int) -> Sequence[s.AuditView]:
        """The newest audit records, newest first."""
        self.need_whole_fleet(who, "the audit log")
        return [_audit_view(entry) for entry in await self.ledger.latest(limit)]

    async def audit_verify(self, who: Principal) -> s.AuditVerdict:
        """Check the whole chain."""
        self.need_whole_fleet(who, "the audit log")
        report = await verify(self.controller.store)
        return s.AuditVerdict(ok=report.ok, count=report.count, first_bad=report.first_bad, reason=report.reason)

    async def backup(self, who: Principal) -> s.BackupView:
        """Write a backup into the state directory."""
        self.need_whole_fleet(who, "a backup")
        folder = self.settings.backup_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"strata-{time.strftime('%Y%m%dT%H%M%S')}-{time.monotonic_ns() % 10**6:06d}.backup"
        revision = await self.controller.store.backup(path)
        await self.ledger.commit(who.name, "store.backup", path.name, [])
        return s.BackupView(path=str(path), revision=revision, bytes=path.stat().st_size)

    async def check_store(self, who: Principal) -> s.StoreCheck:
        """Look at every stored byte."""
        problems = await self.controller.store.check()
        revision = await self.controller.store.revision()
        return s.StoreCheck(ok=not problems, problems=tuple(problems), revision=revision)

    async def model(self) -> s.ModelView:
        """The declared world."""
        declared = msgspec.to_builtins(self.controller.model)
        return s.ModelView(**declared)

    async def model_graph(self) -> str:
        """The same as DOT text."""
        return modelgraph.dot(self.controller.model)

    async def status(self, who: Principal) -> s.StatusView:
        """The fleet at a glance (with a scope: the caller's part of it)."""
        controller, nodes = self.controller, self.seen(who, "*")
        holders = controller.leadership.holders
        shards = range(controller.settings.shards)
        return s.StatusView(
            version=strata.__version__,
            controller=controller.name,
            started=controller.started,
            nodes=len(nodes),
            by_state=controller.counts(nodes),  # type: ignore[arg-type]
            queue=controller.queue(nodes if who.scope else None),
            shards=tuple(
                s.ShardView(shard=n, leader=holders.get(n, ("", 0))[0], epoch=holders.get(n, ("", 0))[1])
                for n in shards
            ),
            freezes=sum(self.touches(who, scope) for scope in self.registry.brakes.freezes),
            holds=int(self.registry.brakes.held[nodes].sum()),
            revision=controller.considered,
        )

    def not_ready(self) -> str:
        """Why requests would fail now, or empty."""
        return self.controller.trouble or self.writable.trouble


def _audit_view(entry: AuditEntry) -> s.AuditView:
    return s.AuditView(
        seq=entry.seq,
        time=entry.time,
        author=entry.author,
        action=entry.action,
        target=entry.target,
        detail=entry.detail,
        hash=entry.hash,
    )


def _sequence_number(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 16:
        raise BadRequest("not a cursor of this list", where="cursor", hint="begin again without it")
    return int(cursor)
