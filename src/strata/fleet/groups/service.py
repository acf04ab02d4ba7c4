"""Requests about groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UnsetType

from strata.core.errors import BadRequest
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.columns import NOBODY
from strata.fleet.fleet import Fleet
from strata.fleet.groups.groups import no_such_group
from strata.fleet.groups.records import GroupSpec, GroupView, MemberChange


class GroupService:
    """Groups."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def groups(self, who: Principal) -> Sequence[GroupView]:
        """All groups (those of the scope), by name."""
        return [self._group(name) for name in sorted(self._fleet.registry.groups) if not who.scope or name in who.scope]

    async def group(self, who: Principal, name: str) -> GroupView:
        """One group, its members folded."""
        if name not in self._fleet.registry.groups or (who.scope and name not in who.scope):
            raise no_such_group(name)
        return self._group(name)

    async def put_group(self, who: Principal, name: str, spec: GroupSpec, expected: int | None) -> GroupView:
        """Create or replace a group."""
        self._fleet.need_whole_fleet(who, "a group")
        members = None
        if not isinstance(spec.members, UnsetType):
            members = self._fleet.registry.select(spec.members, self._fleet.view) if spec.members else NOBODY
        revision = await self._fleet.edits.put_group(
            name, members, who.name, description=spec.description, expected=expected
        )
        await self._fleet.settled(revision)
        return self._group(name)

    async def delete_group(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove a group; its nodes stay."""
        self._fleet.need_whole_fleet(who, "a group")
        await self._fleet.settled(await self._fleet.edits.delete_group(name, who.name, expected))

    async def change_members(self, who: Principal, name: str, change: MemberChange) -> GroupView:
        """Add and remove members."""
        if not change.add and not change.remove:
            raise BadRequest("nothing to do", where="add, remove", hint="give at least one nodeset")
        self._fleet.need_whole_fleet(who, "a group")
        add, remove = (
            self._fleet.registry.select(text, self._fleet.view) if text else NOBODY
            for text in (change.add, change.remove)
        )
        await self._fleet.settled(await self._fleet.edits.change_members(name, who.name, add=add, remove=remove))
        return self._group(name)

    def _group(self, name: str) -> GroupView:
        nodes = np.flatnonzero(self._fleet.registry.groups.mask(name))
        return GroupView(
            name=name,
            description=self._fleet.registry.groups[name].description,
            members=fold(self._fleet.view.names(nodes)),
            count=len(nodes),
            revision=self._fleet.registry.modified(f"group/{name}"),
        )
