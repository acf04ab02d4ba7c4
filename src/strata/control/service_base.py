"""What every part of the service shares: the controller, and how a caller's scope limits what it sees and changes."""

from __future__ import annotations

import numpy as np

from strata.control.columns import Indices, Mask
from strata.control.controller import Controller
from strata.control.edits import Edits
from strata.control.fleet_view import FleetView
from strata.control.jobs import Jobs
from strata.control.principal import Principal
from strata.control.registry import Registry
from strata.control.scoped_fleet import ScopedFleet
from strata.control.selectable import Fleet
from strata.control.selectors import parse
from strata.control.settings import Settings
from strata.control.unknown_nodes import unknown_nodes
from strata.core.errors import Denied, NotFound
from strata.store.audit import Ledger
from strata.store.writable import Writable


class ServiceBase:
    """Base of the parts; ``Service`` fills the fields."""

    controller: Controller
    registry: Registry
    edits: Edits
    ledger: Ledger
    view: FleetView
    jobs_: Jobs
    settings: Settings
    writable: Writable

    def scope(self, who: Principal) -> Mask | None:
        """The nodes that the caller may see and change; None: all."""
        if not who.scope:
            return None
        mask = np.zeros(self.registry.size, dtype=np.bool_)
        for group in who.scope:
            if group in self.registry.groups:
                mask |= self.registry.groups.mask(group)
        return mask

    def fleet(self, who: Principal) -> Fleet:
        """The nodes as the caller may know of them."""
        mask = self.scope(who)
        return self.registry if mask is None else ScopedFleet(self.registry, mask, who.scope)

    def find(self, who: Principal, name: str) -> int:
        """The index of a node in the caller's scope, or -1."""
        return self.fleet(who).find(name)

    def index(self, who: Principal, name: str) -> int:
        """A node by name; one outside the caller's scope is not there."""
        fleet = self.fleet(who)
        index = fleet.find(name)
        if index < 0:
            raise unknown_nodes(fleet, [name])
        return index

    def seen(self, who: Principal, select: str) -> Indices:
        """The selected nodes that the caller may see. One outside its scope is as unknown as one that is nowhere."""
        return parse(select or "*").indices(self.fleet(who), self.view)

    def touches(self, who: Principal, scope: str) -> bool:
        """Whether a freeze of ``scope`` is any of the caller's business."""
        mask = self.scope(who)
        if scope == "fleet" or mask is None:
            return True
        kind, _, name = scope.partition(":")
        if kind == "node":
            return self.find(who, name) >= 0
        return name in self.registry.groups and bool(np.any(mask & self.registry.groups.mask(name)))

    def owned(self, who: Principal, select: str) -> Indices:
        """The selected nodes, all of which the caller must be allowed to change.

        With a scope, the selection itself must stay within it, by naming nodes or the scope's groups. Whether it does
        is read from its words and never from the fleet: a refusal that depended on nodes outside would tell of them.
        """
        if not who.scope:
            return self.registry.select(select, self.view)
        groups = ", ".join(who.scope)
        selector = parse(select)
        if not selector.within(who.scope):
            raise Denied(
                f"the selection may reach beyond {groups}",
                where="select",
                hint=f"name nodes, or begin with one of your groups: @{who.scope[0]} {select[:200]}",
            )
        try:
            return selector.indices(self.fleet(who), self.view)
        except NotFound as error:
            raise Denied(f"not among the nodes of {groups}: {error.detail}", where="select") from None

    def count(self, who: Principal, mask: Mask) -> int:
        """How many of the nodes of ``mask`` the caller may know of."""
        own = self.scope(who)
        return int(np.count_nonzero(mask if own is None else mask & own))

    def need_whole_fleet(self, who: Principal, what: str) -> None:
        """Refuse a caller with a scope."""
        if who.scope:
            raise Denied(f"{what} reaches beyond {', '.join(who.scope)}", where=who.name)

    async def settled(self, revision: int) -> None:
        """Wait until the local view shows what was written."""
        await self.registry.reached(revision)

    async def considered(self, revision: int) -> None:
        """Wait until the states show what was written."""
        await self.settled(revision)
        await self.controller.thought(revision)
