"""Setting desires on nodes, and the desire documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from strata.core.distinct import distinct
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.documents import DesireDocument, Standing, ValueSet, checked, value_sets
from strata.fleet.desires.records import ApplyReport, DocumentChange
from strata.fleet.registry.editor import ATTEMPTS, Editor, encode, folded, too_contended
from strata.store.protocol import Delete, Entry, Op, Put

_FEW = 16
"""Up to so many rows are read one by one; more are read in one go."""


class DesireDone(msgspec.Struct, frozen=True):
    """What became of setting desires on some nodes, aligned with them."""

    changed: Mask
    """Whose desires are now others than before."""
    conflicts: Mapping[int, str]
    """Position → why this node was left alone."""
    revision: int
    """The last revision that it made; the present one if nothing had to change."""


class DesireEdits(Editor):
    """Writes to ``desire/``."""

    known: Mapping[str, Callable[[str], object]] = {}
    """Variable → raises ``NotFound`` where nothing has the name that is wanted (a personality, a profile)."""

    def _require_known(self, wanted: Mapping[str, ValueSet]) -> None:
        for variable, values in wanted.items():
            for value in values if variable in self.known else ():
                try:
                    self.known[variable](value)
                except NotFound as error:
                    raise BadRequest(error.detail, where=f"{variable}={value[:80]}", hint=error.hint) from None

    async def set_desires(
        self,
        nodes: Indices,
        wanted: Mapping[str, str | Iterable[str]],
        unset: Sequence[str],
        author: str,
        if_match: int | None = None,
    ) -> DesireDone:
        """Set and unset variables on nodes themselves. With ``if_match`` a node of which one of these very variables
        was set or unset after that revision, otherwise than wanted now, is left alone and told so; without, the last
        writer wins. Doing it twice is the same as once."""
        change = self.checked_change(wanted, unset)
        # Taken before the first await: an index means the same node only until the registry changes.
        uids = self.registry.uids[nodes]
        names = [self.registry.names[index] for index in nodes.tolist()]
        changed = np.zeros(len(nodes), dtype=np.bool_)
        conflicts = dict.fromkeys(np.flatnonzero(uids < 0).tolist(), "there is no such node any more")
        revision, attempts = self.registry.revision, 0
        left = distinct(uids[uids >= 0] // rows.CHUNK).tolist()
        while left:
            found = await self._rows(left)
            attempts += 1
            again: list[int] = []
            ops: list[Op] = []
            edits: dict[str, tuple[Indices, rows.Edit]] = {}
            for chunk in left:
                key = rows.key_of(chunk)
                at = np.flatnonzero(uids // rows.CHUNK == chunk)
                entry = found.get(key)
                row, modified = (rows.decode(entry.value, key), entry.modified) if entry else ({}, 0)
                edit = rows.edit(row, modified, uids[at] - chunk * rows.CHUNK, change, author, if_match)
                edits[key] = (at, edit)
                for position, variable in edit.conflicts.items():
                    conflicts[int(at[position])] = f"{variable} was changed after revision {if_match}"
                if edit.changed.any():
                    ops.append(Put(key, rows.encode(edit.row)))
            for batch in self.batches(ops):
                who = np.concatenate([edits[op.key][0][edits[op.key][1].changed] for op in batch])
                expect = {op.key: found[op.key].modified if op.key in found else 0 for op in batch}
                try:
                    target = folded(names[place] for place in who.tolist())
                    revision = await self._commit(target, len(who), batch, expect, change, author)
                    changed[who] = True
                except Conflict:
                    again.extend(rows.chunk_of(op.key) for op in batch)
            if again and attempts >= ATTEMPTS:
                raise too_contended("desires")
            left = again
        return DesireDone(changed, conflicts, revision)

    def checked_change(
        self, wanted: Mapping[str, str | Iterable[str]], unset: Sequence[str] = ()
    ) -> dict[str, ValueSet | None]:
        """What to set and (None) unset, in its one form; ``BadRequest`` says which variable or value is wrong."""
        sets = value_sets(self.registry.model, wanted)
        self._require_known(sets)
        change: dict[str, ValueSet | None] = dict(sets)
        for variable in unset:
            if variable not in self.registry.model.variables:
                raise BadRequest("no such state variable", where=variable[:80])
            if variable in change:
                raise BadRequest("both set and unset", where=variable)
            change[variable] = None
        if not change:
            raise BadRequest("nothing to set or unset", where="set", hint="like power=on")
        return change

    async def _commit(
        self,
        target: str,
        count: int,
        batch: Sequence[Op],
        expect: Mapping[str, int],
        change: Mapping[str, ValueSet | None],
        author: str,
    ) -> int:
        detail = {
            "count": count,
            "set": {variable: list(values) for variable, values in change.items() if values is not None},
            "unset": [variable for variable, values in change.items() if values is None],
        }
        return await self.ledger.commit(author, "desire.set", target, batch, expect, detail)

    async def _rows(self, chunks: Sequence[int]) -> dict[str, Entry]:
        if len(chunks) <= _FEW:
            return await self.present(map(rows.key_of, chunks))
        page = await self.store.range(rows.PREFIX)
        return {entry.key: entry for entry in page.entries}

    async def put_document(self, document: DesireDocument, author: str, expected: int | None = None) -> int:
        """Create or replace a document; its revision."""
        document = checked(self.registry.model, document, author)
        self._require_known(document.set)
        key = f"desire/doc/{document.name}"

        def make(entry: Entry | None) -> Op | None:
            return None if entry and _read(entry).same_as(document) else Put(key, encode(document))

        detail = _summary(document)
        return await self.change_row(f"document {document.name}", key, make, author, "document.put", expected, detail)

    async def delete_document(self, name: str, author: str, expected: int | None = None) -> int:
        """Remove a document; the new revision."""
        key = f"desire/doc/{name}"

        def make(entry: Entry | None) -> Op:
            if entry is None:
                raise NotFound(f"no such document: {name[:80]}", where="document")
            return Delete(key)

        return await self.change_row(f"document {name}", key, make, author, "document.delete", expected)

    async def apply_documents(
        self, documents: Sequence[DesireDocument], author: str, *, prune: bool = False, dry_run: bool = False
    ) -> ApplyReport:
        """Make the documents be these (``prune``: and no others), in one transaction. More than the store takes at once
        go in several, in order."""
        model = self.registry.model
        wanted: dict[str, DesireDocument] = {}
        for document in documents:
            if document.name in wanted:
                raise BadRequest("given twice", where=f"document {document.name}")
            wanted[document.name] = checked(model, document, author)
            self._require_known(wanted[document.name].set)
        for _ in range(ATTEMPTS):
            page = await self.store.range("desire/doc/")
            standing = {entry.key.removeprefix("desire/doc/"): entry for entry in page.entries}
            changes = self._difference(wanted, standing, prune)
            revision = page.revision
            ops: list[Op] = []
            for change in changes:
                key = f"desire/doc/{change.name}"
                if change.action == "deleted":
                    ops.append(Delete(key))
                elif change.action != "unchanged":
                    ops.append(Put(key, encode(wanted[change.name])))
            try:
                for batch in () if dry_run else self.batches(ops):
                    names = [op.key.removeprefix("desire/doc/") for op in batch]
                    expect = {
                        op.key: standing[n].modified if n in standing else 0 for n, op in zip(names, batch, strict=True)
                    }
                    detail = {change.name: change.action for change in changes if change.name in names}
                    revision = await self.ledger.commit(
                        author, "document.apply", ",".join(names)[:2000], batch, expect, detail
                    )
                return ApplyReport(changes=tuple(changes), dry_run=dry_run, revision=revision)
            except Conflict:
                continue
        raise too_contended("documents")

    def _difference(
        self, wanted: Mapping[str, DesireDocument], standing: Mapping[str, Entry], prune: bool
    ) -> list[DocumentChange]:
        found = []
        for name, document in sorted(wanted.items()):
            nodes = int(Standing(document, 0, self.registry).mask.sum())
            if name not in standing:
                found.append(DocumentChange(name=name, action="created", nodes=nodes))
                continue
            old = _read(standing[name])
            words = _differences(old, document)
            found.append(
                DocumentChange(name=name, action="changed" if words else "unchanged", nodes=nodes, detail=words)
            )
        for name in sorted(standing.keys() - wanted.keys()) if prune else ():
            nodes = int(Standing(_read(standing[name]), 0, self.registry).mask.sum())
            found.append(DocumentChange(name=name, action="deleted", nodes=nodes))
        return found


def _read(entry: Entry) -> DesireDocument:
    return msgspec.msgpack.decode(entry.value, type=DesireDocument)


def _summary(document: DesireDocument) -> dict[str, object]:
    return {"select": document.select[:2000], "set": document.set, "priority": document.priority}


def _differences(old: DesireDocument, new: DesireDocument) -> str:
    """What is different, in words; empty: nothing."""
    words = []
    if old.select != new.select:
        words.append(f"select {old.select[:200]} → {new.select[:200]}")
    if old.priority != new.priority:
        words.append(f"priority {old.priority} → {new.priority}")
    for variable in sorted({*old.set, *new.set}):
        before, after = old.set.get(variable, ()), new.set.get(variable, ())
        if before != after:
            words.append(f"{variable} {'|'.join(before) or 'unset'} → {'|'.join(after) or 'unset'}")
    return "; ".join(words)
