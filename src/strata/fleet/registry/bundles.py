"""What files say of nodes, groups and desires, made so all at once: checked as a whole, then written.

In one transaction where the store takes it; more goes in several, in this order: nodes, groups, desires.
"""

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
from strata.fleet.desires.edits import DesireEdits
from strata.fleet.desires.records import Applied, ApplyReport
from strata.fleet.groups.edits import GroupEdits
from strata.fleet.groups.records import GroupStatement
from strata.fleet.nodes.edits import NodeEdits
from strata.fleet.nodes.records import NodeStatement
from strata.fleet.registry.editor import NOTES, absent, check_words, encode, folded
from strata.fleet.registry.trial import Trial
from strata.fleet.selectors.language import parse
from strata.store.protocol import Op, Put
from strata.store.records import ATTEMPTS, too_contended


class BundleEdits(NodeEdits, GroupEdits, DesireEdits):
    """Writes what several rooms keep."""

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
            ops: list[Op] = []
            expect: dict[str, int] = {}
            described = await self.described(nodes, ops, expect) if nodes else ([], [])
            fleet = Trial(self.registry, [*described[0], *described[1]], {})
            put = self._grouped(groups, fleet, ops, expect)
            fleet = Trial(self.registry, [*described[0], *described[1]], put)
            page = await self.store.range(DOCUMENTS)
            standing = {entry.key.removeprefix(DOCUMENTS): entry for entry in page.entries}
            changes, notes = self.differences(wanted, standing, prune, fleet, author, ops, expect)
            report = ApplyReport(
                changes=(*_of_nodes(described, len(nodes)), *_of_groups(groups, put, self.registry.groups), *changes),
                dry_run=dry_run,
                revision=page.revision,
            )
            if dry_run or not ops:
                return report
            try:
                return msgspec.structs.replace(report, revision=await self._write(ops, expect, author, report, notes))
            except Conflict as conflict:
                if conflict.where not in expect:
                    raise
                await self.registry.reached(await self.store.revision())
        raise too_contended("what is applied")

    async def _write(
        self, ops: Sequence[Op], expect: dict[str, int], author: str, report: ApplyReport, notes: Sequence[Op]
    ) -> int:
        revision = report.revision
        batches = list(self.batches(ops, NOTES))
        for number, batch in enumerate(batches):
            last = [*notes] if number == len(batches) - 1 else []
            here = {op.key: expect[op.key] for op in batch if op.key in expect} | absent(last)
            moved = [change for change in report.changes if change.action != "unchanged"]
            detail = {f"{change.kind} {change.name[:200]}": change.action for change in moved[:100]}
            target = ",".join(change.name for change in moved)[:2000]
            revision = await self.ledger.commit(author, "document.apply", target, [*batch, *last], here, detail)
        return revision

    def _grouped(
        self, groups: Sequence[GroupStatement], fleet: Trial, ops: list[Op], expect: dict[str, int]
    ) -> dict[str, Group]:
        """The groups that are new or others than before, with what writes them."""
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
                key = f"group/{stated.name}"
                found[stated.name] = group
                ops.append(Put(key, encode(group)))
                expect[key] = self.registry.modified(key)
        return found


def _of_nodes(described: tuple[Sequence[Node], Sequence[Node]], count: int) -> list[Applied]:
    created, changed = described
    shown = []
    if created:
        shown.append(Applied(kind="node", name=folded(n.name for n in created), action="created", nodes=len(created)))
    if changed:
        shown.append(Applied(kind="node", name=folded(n.name for n in changed), action="changed", nodes=len(changed)))
    same = count - sum(map(len, described))
    return shown + ([Applied(kind="node", name="", action="unchanged", nodes=same)] if same else [])


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
