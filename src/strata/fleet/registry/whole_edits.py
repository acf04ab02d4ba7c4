"""Many edits as one: nodes, groups and documents that change together, in one transaction where the store takes it.

``prepare`` only reads, and says what would be written; so what is planned is what is done. Everything is written only
if nobody has changed it since the view was compared with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network

import msgspec
import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.core.node import Group, Node, check_group_name
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.desires.edits import PREFIX as DOCUMENTS
from strata.fleet.desires.edits import DesireEdits
from strata.fleet.groups.edits import GroupEdits
from strata.fleet.nodes.edits import NEXT_UID, Claimed, NodeEdits
from strata.fleet.registry.editor import absent, encode
from strata.store.protocol import Delete, Op, Put

_AT_A_TIME = 250
"""Nodes that are looked at before others have a turn."""


class GroupMembers(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it should be."""

    members: frozenset[str]
    """Names of nodes, of which some may only come with the same edit."""
    description: str = ""


class WholeEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What should be different. What is not named stays as it is."""

    seen: int
    """The registry's revision that this was worked out from."""
    nodes: Sequence[Node] = ()
    """Checked descriptions (``nodes.edits.checked_node``) in place of those that are there, or of nodes to create. Uids
    are not looked at."""
    networks: Sequence[IPv4Network] = ()
    """Boot networks that come with the same edit: nodes may have addresses in them."""
    no_nodes: Sequence[str] = ()
    """Nodes to forget, with all that was said about them."""
    groups: Mapping[str, GroupMembers | None] = {}
    """None: there is to be none of this name."""
    documents: Mapping[str, DesireDocument | None] = {}
    """Checked ones (``DesireEdits.checked_document``)."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit would write, and the revisions that it was worked out from. Nodes come first, removals last."""

    ops: tuple[Op, ...]
    expect: Mapping[str, int]
    notes: tuple[Op, ...] = ()
    """What of it belongs into the history of nodes: written with the last of it."""

    def with_(self, ops: Sequence[Op], expect: Mapping[str, int]) -> Prepared:
        """The same, and ``ops`` before the removals."""
        puts = [op for op in self.ops if isinstance(op, Put)]
        gone = [op for op in self.ops if isinstance(op, Delete)]
        return Prepared(ops=(*puts, *ops, *gone), expect={**self.expect, **expect}, notes=self.notes)


class WholeEdits(NodeEdits, GroupEdits, DesireEdits):
    """Edits of everything at once."""

    async def prepare(self, edit: WholeEdit, author: str) -> Prepared:
        """What would be written; raises ``BadRequest``, ``Conflict`` or ``Refused`` where it cannot be."""
        claim = await self._claim()
        expect: dict[str, int] = {}
        ops: list[Op] = []
        moving = {node.name for node in edit.nodes} | set(edit.no_nodes)
        own, addressed = Claimed(), self._addressed({i.address for node in edit.nodes for i in node.interfaces})
        fresh: dict[str, int] = {}
        for at, node in enumerate(edit.nodes):
            if at % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            own.take(node)
            is_new = self.registry.find(node.name) < 0
            if (
                written := self._row(node, claim, addressed, moving, ops, expect, edit.networks)
            ) is not None and is_new:
                fresh[node.name] = written.uid
        if ops:
            ops.insert(0, claim.put())
            expect[NEXT_UID] = claim.modified
        gone = self._gone(edit.no_nodes)
        ops += self._group_ops(edit, fresh, gone, expect)
        notes = []
        for name, document in edit.documents.items():
            key = f"{DOCUMENTS}{name}"
            expect[key] = self.registry.modified(key)
            ops.append(Delete(key) if document is None else Put(key, encode(document)))
            before = self.registry.desires.documents.get(name)
            notes.append(self._note(before.document if before else None, document, author))
        ops += await self._traces_of(gone, expect)
        ops.sort(key=lambda op: isinstance(op, Delete))
        late = [key for key, modified in expect.items() if modified > edit.seen and key != NEXT_UID]
        if late:
            # What was to be written was worked out from something older: it would undo what somebody has done since.
            raise Conflict("somebody changed it meanwhile", where=late[0], revision=self.registry.revision)
        return Prepared(ops=tuple(ops), expect=expect, notes=tuple(self.noted(notes)))

    async def commit_prepared(
        self, prepared: Prepared, author: str, action: str, target: str, detail: Mapping[str, object]
    ) -> int:
        """Write it: in one transaction where the store takes so much, otherwise in several, in order. ``Conflict``:
        somebody changed something of it meanwhile, and with one transaction nothing was written."""
        ops = (*prepared.ops, *prepared.notes)
        expect = {**prepared.expect, **absent(prepared.notes)}
        return await self.ledger.commit_many(author, action, target, ops, expect, detail)

    def is_one_transaction(self, prepared: Prepared) -> bool:
        """Whether all of it is written, or nothing."""
        return len(self.ledger.parts((*prepared.ops, *prepared.notes))) == 1

    def _gone(self, names: Sequence[str]) -> dict[str, int]:
        found = {}
        for name in names:
            index = self.registry.find(name)
            if index < 0:
                raise NotFound(f"no such node: {name[:80]}", where="node")
            found[name] = int(self.registry.uids[index])
        return found

    def _group_ops(
        self, edit: WholeEdit, fresh: Mapping[str, int], gone: Mapping[str, int], expect: dict[str, int]
    ) -> list[Op]:
        ops: list[Op] = []
        for name, wanted in edit.groups.items():
            key = f"group/{name}"
            expect[key] = self.registry.modified(key)
            if wanted is None:
                if f"group:{name}" in self.registry.brakes.freezes:
                    raise Refused(
                        "the group is frozen",
                        by=f"group:{name}",
                        where=f"group {name}",
                        hint="thaw it before deleting it",
                    )
                expect[f"freeze/group:{name}"] = 0
                ops.append(Delete(key))
                continue
            check_group_name(name)
            there = self.registry.uids
            uids = np.fromiter((self._uid(one, there, fresh, gone, name) for one in wanted.members), dtype=np.int64)
            group = Group(name=name, members=intset.pack(np.sort(uids)), description=wanted.description)
            ops.append(Put(key, encode(group)))
        away = intset.pack(np.sort(np.fromiter(gone.values(), dtype=np.int64)))
        for name, group in self.registry.groups.items() if gone else ():
            left = intset.difference(group.members, away)
            if name not in edit.groups and left != group.members:
                expect[f"group/{name}"] = self.registry.modified(f"group/{name}")
                ops.append(Put(f"group/{name}", encode(msgspec.structs.replace(group, members=left))))
        return ops

    def _uid(self, name: str, there: rows.Uids, fresh: Mapping[str, int], gone: Mapping[str, int], group: str) -> int:
        index = self.registry.find(name)
        uid = fresh.get(name, int(there[index]) if index >= 0 else -1)
        if uid < 0 or name in gone:
            why = "would not be there any more" if name in gone else "is not there"
            raise BadRequest(f"node {name[:80]} {why}", where=f"group {group}", hint="add the node, or leave it out")
        return uid

    async def _traces_of(self, gone: Mapping[str, int], expect: dict[str, int]) -> list[Op]:
        """What removes all that was said about these nodes, but for the groups that they are in."""
        ops: list[Op] = []
        for name in gone:
            expect[f"node/{name}"] = self.registry.modified(f"node/{name}")
            ops.append(Delete(f"node/{name}"))
            ops += [Delete(f"{kept}{name}") for kept in ("hold/", "freeze/node:", *self.kept_by_name)]
        by_row: dict[str, list[int]] = {}
        for uid in gone.values():
            by_row.setdefault(rows.key_of(uid // rows.CHUNK), []).append(uid % rows.CHUNK)
        for key, entry in (await self.present(by_row)).items():
            row = rows.decode(entry.value, key)
            for offset in by_row[key]:
                row = rows.wiped(row, entry.modified, offset)
            expect[key] = entry.modified
            ops.append(Put(key, rows.encode(row)) if row else Delete(key))
        return ops
