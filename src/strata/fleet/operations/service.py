"""What can be asked of operations. With a scope, one sees one's own."""

from __future__ import annotations

from strata.core.errors import NotFound
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation, OperationPage, OperationRow


class OperationService:
    """Operations."""

    def __init__(self, fleet: Fleet) -> None:
        self._operations = fleet.operations

    async def operations(self, who: Principal, limit: int = 100, after: str = "") -> OperationPage:
        """Operations, newest first."""
        found = [one for one in await self._operations.recent(limit=2**31, after=after) if _sees(who, one)]
        following = found[limit - 1].id if len(found) > limit else None
        return OperationPage(items=tuple(one.shown() for one in found[:limit]), next=following)

    async def operation(self, who: Principal, ident: str) -> Operation:
        """One operation with its progress."""
        found = await self._operations.show(ident)
        if not _sees(who, found):
            raise NotFound(f"no such operation: {ident[:80]}", where="operation")
        return found.shown()

    async def cancel_operation(self, who: Principal, ident: str) -> Operation:
        """Stop an operation before its next chunk. What is done stays done."""
        await self.operation(who, ident)
        return (await self._operations.cancel(ident, who.name)).shown()


def _sees(who: Principal, operation: OperationRow) -> bool:
    return not who.scope or operation.author == who.name
