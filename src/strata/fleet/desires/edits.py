"""Setting desires on nodes, and the desire documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from strata.core.distinct import distinct
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.documents import DesireDocument, Standing, ValueSet, checked, value_sets
from strata.fleet.desires.records import Applied
from strata.fleet.history.transitions import FactChange
from strata.fleet.registry.editor import NOTES, Editor, absent, encode, folded
from strata.fleet.selectors.selectable import Selectable
from strata.store.protocol import Delete, Entry, Op, Put
from strata.store.records import ATTEMPTS, too_contended

PREFIX = "desire/doc/"
"""Keys of documents."""

WANT = "want"
"""The name under which the history of nodes has what was wanted of them."""

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
        *,
        amend: bool = False,
    ) -> DesireDone:
        """Set and unset variables on nodes themselves. With ``if_match`` a node of which one of these very variables
        was set or unset after that revision, otherwise than wanted now, is left alone and told so; without, the last
        writer wins. With ``amend`` it counts as said when these variables were last set: who has since wanted what
        cannot be true together with it keeps the last word. Doing it twice is the same as once."""
        change = self.checked_change(wanted, unset)
        # Taken before the first await: an index means the same node only until the registry changes.
        uids = self.registry.uids[nodes]
        names = [self.registry.names[index] for index in nodes.tolist()]
        changed = np.zeros(len(nodes), dtype=np.bool_)
        conflicts = dict.fromkeys(np.flatnonzero(uids < 0).tolist(), "there is no such node any more")
        rivals = {variable: self.registry.desires.rivals(variable) for variable in change}
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
                edit = rows.edit(
                    row, modified, uids[at] - chunk * rows.CHUNK, change, author, if_match, rivals, amend=amend
                )
                edits[key] = (at, edit)
                for position, variable in edit.conflicts.items():
                    conflicts[int(at[position])] = f"{variable} was changed after revision {if_match}"
                if edit.changed.any():
                    ops.append(Put(key, rows.encode(edit.row)))
            for batch in self.batches(ops, NOTES):
                who = np.concatenate([edits[op.key][0][edits[op.key][1].changed] for op in batch])
                expect = {op.key: found[op.key].modified if op.key in found else 0 for op in batch}
                try:
                    target = folded(names[place] for place in who.tolist())
                    notes = self.noted([FactChange(WANT, "", _words(change), author, "", uids[who])])
                    expect |= absent(notes)
                    revision = await self._commit(target, len(who), [*batch, *notes], expect, change, author)
                    changed[who] = True
                except Conflict:
                    again.extend(rows.chunk_of(op.key) for op in batch)
            if again and attempts >= ATTEMPTS:
                raise too_contended("desires")
            left = again
        return DesireDone(changed, conflicts, revision)

    def checked_wish(self, wanted: Mapping[str, str | Iterable[str]]) -> dict[str, ValueSet]:
        """What to set, in its one form; ``BadRequest`` says which variable or value is wrong."""
        sets = value_sets(self.registry.model, wanted)
        self._require_known(sets)
        return sets

    def checked_document(self, document: DesireDocument, author: str) -> DesireDocument:
        """A document in its one form and under its author; ``BadRequest`` says what is wrong with it and where."""
        document = checked(self.registry.model, document, author)
        try:
            self._require_known(document.set)
        except BadRequest as error:
            raise BadRequest(
                error.detail, where=f"document {document.name!r}: {error.where}", hint=error.hint
            ) from None
        return document

    def checked_change(
        self, wanted: Mapping[str, str | Iterable[str]], unset: Sequence[str] = ()
    ) -> dict[str, ValueSet | None]:
        """What to set and (None) unset, in its one form; ``BadRequest`` says which variable or value is wrong."""
        change: dict[str, ValueSet | None] = dict(self.checked_wish(wanted))
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
        document = self.checked_document(document, author)
        key = f"{PREFIX}{document.name}"

        def make(entry: Entry | None) -> Op | None:
            return None if entry and _read(entry).same_as(document) else Put(key, encode(document))

        return await self.change_row(
            f"document {document.name}",
            key,
            make,
            author,
            "document.put",
            expected,
            _summary(document),
            lambda entry: [self._note(_read(entry) if entry else None, document, author)],
        )

    async def delete_document(self, name: str, author: str, expected: int | None = None) -> int:
        """Remove a document; the new revision."""
        key = f"{PREFIX}{name}"

        def make(entry: Entry | None) -> Op:
            if entry is None:
                raise NotFound(f"no such document: {name[:80]}", where="document")
            return Delete(key)

        def note(entry: Entry | None) -> list[FactChange]:
            return [self._note(_read(entry), None, author)] if entry else []

        return await self.change_row(f"document {name}", key, make, author, "document.delete", expected, note=note)

    def _note(self, before: DesireDocument | None, after: DesireDocument | None, author: str) -> FactChange:
        """For the history of all nodes that a document is, or was, about: what it wants now instead of before."""
        there = [document for document in (before, after) if document is not None]
        masks = [Standing(document, 0, self.registry).mask for document in there]
        nodes = np.flatnonzero(np.logical_or.reduce(masks))
        old, new = ("" if document is None else _words(document.set) for document in (before, after))
        return FactChange(WANT, old, new, author, f"document {there[0].name}", self.registry.uids[nodes])

    def differences(self, wanted: Mapping[str, DesireDocument], prune: bool, fleet: Selectable) -> list[Applied]:
        """What would change for documents to be ``wanted`` (``prune``: and no others) in ``fleet``."""
        standing = self.registry.desires.documents
        names = [*sorted(wanted), *(sorted(standing.keys() - wanted.keys()) if prune else ())]
        return [
            _change(standing[name].document if name in standing else None, wanted.get(name), fleet) for name in names
        ]


def _change(before: DesireDocument | None, after: DesireDocument | None, fleet: Selectable) -> Applied:
    document = after or before
    assert document is not None
    now = Standing(document, 0, fleet)
    words = _differences(before, after) if before is not None and after is not None else ""
    action: Literal["created", "changed", "unchanged", "deleted"] = "changed" if words else "unchanged"
    if after is None or before is None:
        action = "deleted" if after is None else "created"
    missing = sorted(now.selector.groups - {"*", *fleet.groups}) if after is not None else ()
    return Applied(name=document.name, action=action, nodes=int(now.mask.sum()), detail=words, missing=tuple(missing))


def _words(change: Mapping[str, ValueSet | None]) -> str:
    """What is wanted, as people write it."""
    said = (f"{name}={'|'.join(values)}" if values is not None else f"{name} unset" for name, values in change.items())
    return " ".join(said)[:500]


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
