"""Requests about groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UnsetType

from strata.control.columns import NOBODY
from strata.control.fleet_views.groups import GroupSpec, GroupView, MemberChange
from strata.control.groups import no_such_group
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core.nodeset import fold


class GroupService(ServiceBase):
    """Groups."""

    async def groups(self, who: Principal) -> Sequence[GroupView]:
        """All groups (those of the scope), by name."""
        return [self._group(name) for name in sorted(self.registry.groups) if not who.scope or name in who.scope]

    async def group(self, who: Principal, name: str) -> GroupView:
        """One group."""
        if name not in self.registry.groups or (who.scope and name not in who.scope):
            raise no_such_group(name)
        return self._group(name)

    async def put_group(self, who: Principal, name: str, spec: GroupSpec, expected: int | None) -> GroupView:
        """Create or replace."""
        self.need_whole_fleet(who, "a group")
        members = None
        if not isinstance(spec.members, UnsetType):
            members = self.registry.select(spec.members, self.view) if spec.members else NOBODY
        revision = await self.edits.put_group(name, members, who.name, description=spec.description, expected=expected)
        await self.settled(revision)
        return self._group(name)

    async def delete_group(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove the group; its nodes stay."""
        self.need_whole_fleet(who, "a group")
        await self.settled(await self.edits.delete_group(name, who.name, expected))

    async def change_members(self, who: Principal, name: str, change: MemberChange) -> GroupView:
        """Add and remove members."""
        self.need_whole_fleet(who, "a group")
        add, remove = (
            self.registry.select(text, self.view) if text else NOBODY for text in (change.add, change.remove)
        )
        await self.settled(await self.edits.change_members(name, who.name, add=add, remove=remove))
        return self._group(name)

    def _group(self, name: str) -> GroupView:
        nodes = np.flatnonzero(self.registry.groups.mask(name))
        return GroupView(
            name=name,
            description=self.registry.groups[name].description,
            members=fold(self.view.names(nodes)),
            count=len(nodes),
            revision=self.registry.modified(f"group/{name}"),
        )
