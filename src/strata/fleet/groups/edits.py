"""Creating, changing and deleting groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from strata.core import intset
from strata.core.errors import Conflict, NotFound, Refused
from strata.core.node import Group, check_group_name
from strata.fleet.columns import NOBODY, Indices
from strata.fleet.registry.editor import Editor, check_words, encode, folded
from strata.store.protocol import Delete, Entry, Op, Put
from strata.store.records import ATTEMPTS, expected_revision, too_contended


class GroupEdits(Editor):
    """Writes to ``group/``."""

    async def put_group(
        self,
        name: str,
        members: Indices | None,
        author: str,
        *,
        description: str = "",
        expected: int | None = None,
    ) -> int:
        """Create or replace a group; ``members`` None: those that it has stay. The group's revision."""
        check_group_name(name)
        if description:
            description = check_words(f"description of group {name}", description)
        runs = None if members is None else intset.pack(self.registry.uids[members])

        def replaced(old: Group | None) -> Group:
            kept = runs if runs is not None else old.members if old else ()
            return Group(name=name, members=kept, description=description)

        count = "kept" if members is None else len(members)
        return await self._change(name, replaced, author, "group.put", expected, {"members": count})

    async def change_members(self, name: str, author: str, *, add: Indices = NOBODY, remove: Indices = NOBODY) -> int:
        """Add, then remove members; the group's revision."""
        uids = self.registry.uids
        added, removed = intset.pack(uids[add]), intset.pack(uids[remove])

        def changed(old: Group | None) -> Group:
            if old is None:
                raise NotFound(
                    f"no such group: {name[:80]}", where="group", hint="create it first: strata group create NAME NODES"
                )
            members = intset.difference(intset.union(old.members, added), removed)
            return msgspec.structs.replace(old, members=members)

        names = self.registry.names
        detail = {
            "add": folded(names[index] for index in add.tolist()),
            "remove": folded(names[index] for index in remove.tolist()),
        }
        return await self._change(name, changed, author, "group.members", None, detail)

    async def delete_group(self, name: str, author: str, expected: int | None = None) -> int:
        """Remove a group; its nodes stay. Refused while it is frozen: that would take off the brake unseen."""
        key, brake = f"group/{name}", f"freeze/group:{name}"
        for _ in range(ATTEMPTS):
            found = await self.present([key, brake])
            if key not in found:
                raise NotFound(f"no such group: {name[:80]}", where="group")
            expected_revision(f"group {name}", expected, found[key].modified)
            if brake in found:
                raise Refused(
                    "the group is frozen", by=f"group:{name}", where=f"group {name}", hint="thaw it before deleting it"
                )
            try:
                expect = {key: found[key].modified, brake: 0}
                return await self.ledger.commit(author, "group.delete", name, [Delete(key)], expect)
            except Conflict:
                continue
        raise too_contended(f"group {name}")

    async def _change(
        self,
        name: str,
        change: Callable[[Group | None], Group],
        author: str,
        action: str,
        expected: int | None,
        detail: Mapping[str, str | int],
    ) -> int:
        key = f"group/{name}"

        def make(entry: Entry | None) -> Op | None:
            old = msgspec.msgpack.decode(entry.value, type=Group) if entry else None
            new = change(old)
            return None if new == old else Put(key, encode(new))

        return await self.change_row(f"group {name}", key, make, author, action, expected, detail)
