"""What files say of nodes, groups and desires, made so all at once: checked as a whole, then written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import UnsetType

from strata.core import intset
from strata.core.errors import BadRequest, Conflict
from strata.core.node import Group, Node, check_group_name
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.desires.edits import PREFIX as DOCUMENTS
from strata.fleet.desires.records import Applied, ApplyReport
from strata.fleet.groups.records import GroupStatement
from strata.fleet.nodes.records import NodeStatement
from strata.fleet.registry.editor import check_words, folded
from strata.fleet.registry.registry import Registry
from strata.fleet.registry.trial import Trial
from strata.fleet.registry.whole_edits import GroupMembers, WholeEdit, WholeEdits
from strata.fleet.selectors.language import parse
from strata.store.protocol import Put
from strata.store.records import ATTEMPTS, too_contended

_FIRST_NEW = 2**62
"""Uids of nodes that have none yet begin here, for as long as it is worked out who would be in which group."""


class BundleEdits(WholeEdits):
    """Writes what files say."""

    async def apply(
        self,
        documents: Sequence[DesireDocument],
        author: str,
        *,
        nodes: Sequence[NodeStatement] = (),
        groups: Sequence[GroupStatement] = (),
        prune: bool = False,
        dry_run: bool = False,
    ) -> ApplyReport:
        """Make nodes and groups be what is said of them, and the documents be these (``prune``: and no others).
        Whatever is wrong with any of it is found before anything is written, whether or not this is a ``dry_run``."""
        wanted: dict[str, DesireDocument] = {}
        for document in documents:
            if document.name in wanted:
                raise BadRequest("given twice", where=f"document {document.name}")
            wanted[document.name] = self.checked_document(document, author)
        for _ in range(ATTEMPTS):
            standing = (await self.store.range(DOCUMENTS)).entries
            await self.registry.reached(max((entry.modified for entry in standing), default=0))
            seen = self.registry.revision
            described = self.stated(nodes)
            numbered = _numbered(described, self.registry)
            put = self._grouped(groups, Trial(self.registry, numbered, {}))
            fleet = Trial(self.registry, numbered, put)
            changes = self.differences(wanted, prune, fleet)
            edit = WholeEdit(
                seen=seen,
                nodes=described,
                groups=_by_members(put, fleet),
                documents={one.name: wanted.get(one.name) for one in changes if one.action != "unchanged"},
            )
            others = [*_of_groups(groups, put, self.registry.groups), *changes]
            try:
                prepared = await self.prepare(edit, author)
                written = [op.key for op in prepared.ops if isinstance(op, Put) and op.key.startswith("node/")]
                changes = [*self._of_nodes(written, len(nodes)), *others]
                report = ApplyReport(changes=tuple(changes), dry_run=dry_run, revision=seen)
                if dry_run or not prepared.ops:
                    return report
                moved = [change for change in changes if change.action != "unchanged"]
                detail = {f"{change.kind} {change.name[:200]}": change.action for change in moved[:100]}
                target = ",".join(change.name for change in moved)[:2000]
                revision = await self.commit_prepared(prepared, author, "document.apply", target, detail)
                return msgspec.structs.replace(report, revision=revision)
            except Conflict as conflict:
                if "/" not in conflict.where:
                    raise  # no key: that is how it is, and not somebody who was faster
                await self.registry.reached(conflict.revision)
        raise too_contended("what is applied")

    def _grouped(self, groups: Sequence[GroupStatement], fleet: Trial) -> dict[str, Group]:
        """The groups that are new or others than before."""
        found: dict[str, Group] = {}
        for stated in groups:
            where = f"group {stated.name}"
            check_group_name(stated.name)
            if stated.name in found:
                raise BadRequest("given twice", where=where)
            before = self.registry.groups.get(stated.name)
            members = before.members if before is not None else ()
            if not isinstance(stated.members, UnsetType):
                try:
                    meant = parse(stated.members).indices(fleet) if stated.members else np.zeros(0, dtype=np.int64)
                except BadRequest as error:
                    raise BadRequest(error.detail, where=f"{where}: {error.where}", hint=error.hint) from None
                members = intset.pack(np.sort(fleet.uids[meant]))
            if stated.description:
                check_words(f"description of {where}", stated.description)
            group = Group(name=stated.name, members=members, description=stated.description)
            if group != before:
                found[stated.name] = group
        return found

    def _of_nodes(self, written: Sequence[str], count: int) -> list[Applied]:
        """What would become of the nodes of the request; ``written``: the keys of those that are not so already."""
        names = [key.removeprefix("node/") for key in written]
        created = [name for name in names if self.registry.find(name) < 0]
        changed = [name for name in names if self.registry.find(name) >= 0]
        shown: list[Applied] = []
        if created:
            shown.append(Applied(kind="node", name=folded(created), action="created", nodes=len(created)))
        if changed:
            shown.append(Applied(kind="node", name=folded(changed), action="changed", nodes=len(changed)))
        same = count - len(names)
        return shown + ([Applied(kind="node", name="", action="unchanged", nodes=same)] if same else [])


def _numbered(nodes: Sequence[Node], registry: Registry) -> list[Node]:
    """The nodes with the uids that they have, or others that nobody has."""
    found = []
    for at, node in enumerate(nodes):
        index = registry.find(node.name)
        uid = int(registry.uids[index]) if index >= 0 else _FIRST_NEW + at
        found.append(msgspec.structs.replace(node, uid=uid))
    return found


def _by_members(groups: Mapping[str, Group], fleet: Trial) -> dict[str, GroupMembers]:
    """The groups with their members by name."""
    names = fleet.names if groups else ()
    return {
        name: GroupMembers(
            members=frozenset(names[index] for index in np.flatnonzero(fleet.groups.mask(name)).tolist()),
            description=group.description,
        )
        for name, group in groups.items()
    }


def _of_groups(groups: Sequence[GroupStatement], put: Mapping[str, Group], there: Mapping[str, Group]) -> list[Applied]:
    return [
        Applied(
            kind="group",
            name=stated.name,
            action="unchanged" if stated.name not in put else "changed" if stated.name in there else "created",
            nodes=sum(last - first + 1 for first, last in put[stated.name].members) if stated.name in put else 0,
        )
        for stated in groups
    ]
