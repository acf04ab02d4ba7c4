"""What can be asked of the audit log. It is about the whole fleet: who has a scope does not see it."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import BadRequest
from strata.core.texts import Out
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.store.audit import AuditEntry, AuditReport, verify


class AuditPage(Out, frozen=True, kw_only=True):
    """A part of the audit log, oldest first."""

    items: tuple[AuditEntry, ...]
    next: str | None


class AuditService:
    """The audit log."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def audit(self, who: Principal, since: int, limit: int, after: str) -> AuditPage:
        """Audit records, oldest first."""
        self._fleet.need_whole_fleet(who, "the audit log")
        seen = _sequence_number(after) if after else max(0, since - 1)
        found = await self._fleet.ledger.entries(seen, limit + 1)
        return AuditPage(items=tuple(found[:limit]), next=str(found[limit - 1].seq) if len(found) > limit else None)

    async def audit_latest(self, who: Principal, limit: int) -> Sequence[AuditEntry]:
        """The newest audit records, newest first."""
        self._fleet.need_whole_fleet(who, "the audit log")
        return await self._fleet.ledger.latest(limit)

    async def audit_verify(self, who: Principal) -> AuditReport:
        """Whether the log is whole: nothing altered, reordered, removed or cut off."""
        self._fleet.need_whole_fleet(who, "the audit log")
        return await verify(self._fleet.store)


def _sequence_number(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 16:
        raise BadRequest("not a cursor of this list", where="cursor", hint="begin again without it")
    return int(cursor)
