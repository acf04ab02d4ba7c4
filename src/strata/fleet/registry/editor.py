"""What all edits share: the registry that they read, the ledger that they write through, and how work is cut up.

Every edit checks first and changes nothing on bad input; reads what it is about to change from the store, not from the
view (which may be a moment behind); and writes it back only if nobody changed it in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Conflict
from strata.core.nodeset import fold
from strata.fleet.columns import Indices
from strata.fleet.history import transitions
from strata.fleet.history.transitions import FactChange
from strata.fleet.registry.registry import Registry
from strata.store.audit import Ledger
from strata.store.protocol import Entry, Op, Put
from strata.store.records import ATTEMPTS, expected_revision, too_contended

BATCH_BYTES = 1_000_000
"""The most payload in one transaction; etcd takes 1.5 MB."""

NOTES = 2
"""Operations of a commit that are left for what goes into the history of nodes..."""
NOTE_BYTES = 400_000
"""...and their bytes, beside ``BATCH_BYTES``."""

LONGEST_WORDS = 500
"""Characters of a reason or a description."""

log = logging.getLogger(__name__)

encode = msgspec.msgpack.Encoder().encode


class Done(msgspec.Struct, frozen=True):
    """An edit of many nodes: those that it changed, and the revision that it made (the present one if none)."""

    nodes: Indices
    revision: int


class Editor:
    """Base of the edits."""

    def __init__(self, registry: Registry, ledger: Ledger) -> None:
        self.registry = registry
        self.store = registry.store
        self.ledger = ledger
        self._next_note = 0

    async def present(self, keys: Iterable[str]) -> dict[str, Entry]:
        """The entries among ``keys`` that exist, read now."""
        found = {key: await self.store.get(key) for key in keys}
        return {key: entry for key, entry in found.items() if entry is not None}

    async def change_row(
        self,
        what: str,
        key: str,
        make: Callable[[Entry | None], Op | None],
        author: str,
        action: str,
        expected: int | None,
        detail: Mapping[str, Any] | None = None,
        note: Callable[[Entry | None], Iterable[FactChange]] = lambda _: (),
    ) -> int:
        """Change one row by what it is now, unless somebody changes it meanwhile; its revision. ``make`` gives None
        where nothing has to change; ``what`` is ``document NAME``; ``expected`` the revision that the caller knows;
        ``note`` what of it belongs into the history of nodes."""
        for _ in range(ATTEMPTS):
            entry = await self.store.get(key)
            modified = entry.modified if entry else 0
            expected_revision(what, expected, modified)
            op = make(entry)
            if op is None:
                return modified
            try:
                notes = self.noted(note(entry))
                expect = {key: modified, **absent(notes)}
                return await self.ledger.commit(author, action, what.partition(" ")[2], [op, *notes], expect, detail)
            except Conflict:
                continue
        raise too_contended(what)

    def noted(self, changes: Iterable[FactChange]) -> list[Op]:
        """What puts into the history of nodes, with the very edit, what somebody (``source``) did about them. To be
        committed with the expectation that there is nothing at these keys (``absent``)."""
        wall = self.ledger.clock()
        values = [transitions.encode(row) for row in transitions.rows_of(wall, "", changes)]
        kept = values[:NOTES]
        while sum(map(len, kept)) > NOTE_BYTES:
            kept.pop()
        if len(kept) < len(values):
            log.warning("an edit is in the audit log only: its nodes take too much room in their history")
        # Keys are times. Where another has taken the very same one, the next try is a moment later, by any clock.
        first = self._next_note = max(self._next_note, int(wall * 1e6))
        self._next_note += len(kept)
        return [Put(transitions.key_of(first + at), value) for at, value in enumerate(kept)]

    def batches(self, ops: Iterable[Op], reserve: int = 0) -> Iterator[list[Op]]:
        """Cut operations into what one commit takes, leaving ``reserve`` places free."""
        batch: list[Op] = []
        size = 0
        for op in ops:
            weight = len(op.value) if isinstance(op, Put) else 0
            if batch and (len(batch) >= self.ledger.room - reserve or size + weight > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(op)
            size += weight
        if batch:
            yield batch


def absent(ops: Iterable[Op]) -> dict[str, int]:
    """The expectation that there is nothing yet where ``ops`` write."""
    return {op.key: 0 for op in ops}


def folded(names: Iterable[str], longest: int = 2000) -> str:
    """A nodeset for the audit log, cut where it does not fold well."""
    text = fold(names)
    return text if len(text) <= longest else f"{text[:longest]}…"


def check_words(what: str, text: str) -> str:
    """A text that a person gives: not empty, not endless, nothing that a terminal would obey."""
    text = text.strip()
    if not text or len(text) > LONGEST_WORDS or not text.isprintable():
        raise BadRequest(f"give 1 to {LONGEST_WORDS} printable characters", where=what)
    return text
