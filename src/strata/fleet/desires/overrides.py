"""Desires set on nodes themselves, in rows of a thousand nodes each: the codec, look-ups, and the edit of a row.

A row (``desire/node/<chunk>``) holds per variable one cell for each of its uids: a code into the value sets, a code
into the authors, and the revision at which the cell was last changed (0: never). A row cannot know the revision of
the very transaction that writes it; such cells hold -1, which reads as the row's own, and the next edit writes that in.
A cell that was unset keeps its revision, so that a writer who did not see the unsetting is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct
from strata.core.errors import Corrupt
from strata.fleet.columns import Codes, Mask
from strata.fleet.desires.documents import ValueSet

CHUNK = 1000
"""Uids per row."""
PREFIX = "desire/node/"

Uids = npt.NDArray[np.int64]
_SMALL = np.dtype("<i2")
_LARGE = np.dtype("<i8")
_NOW = -1
"""Stands for the revision of the transaction that writes the row."""
_EARLIEST = 1
"""Of what counts as said before all else; 0 would be never."""


class Field(msgspec.Struct, frozen=True):
    """One variable's cells. Codes are 1-based; 0 is no override."""

    words: tuple[ValueSet, ...]
    codes: bytes
    authors: tuple[str, ...]
    author_codes: bytes
    revisions: bytes

    def cells(self) -> npt.NDArray[np.int16]:
        """The code of every uid's value set."""
        return np.frombuffer(self.codes, dtype=_SMALL)


Row = dict[str, Field]
_decoder = msgspec.msgpack.Decoder(Row)
_encode = msgspec.msgpack.Encoder().encode


class Cell(msgspec.Struct, frozen=True):
    """One override: what is wanted, who said so, and when it was acknowledged."""

    values: ValueSet
    author: str
    revision: int


def key_of(chunk: int) -> str:
    """The store's key of a row."""
    return f"{PREFIX}{chunk:06d}"


def chunk_of(key: str) -> int:
    """The number in a row's key."""
    try:
        return int(key.removeprefix(PREFIX))
    except ValueError:
        raise Corrupt("not the key of an override row", where=key[:80]) from None


def decode(value: bytes, where: str) -> Row:
    """Read a row; ``Corrupt`` if it is not one."""
    try:
        row = _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"unreadable override row: {error}", where=where) from None
    for field in row.values():
        sizes = (len(field.codes), len(field.author_codes), len(field.revisions))
        if sizes != (CHUNK * 2, CHUNK * 2, CHUNK * 8) or int(field.cells().max()) > len(field.words):
            raise Corrupt("an override row whose columns do not fit", where=where)
    return row


def encode(row: Row) -> bytes:
    """The stored form of a row."""
    return _encode(row)


class Overrides:
    """All rows, as last seen in the store."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Row, int]] = {}

    def put(self, chunk: int, row: Row, modified: int) -> set[str]:
        """Take a row in; the variables that it, or the one before it, has cells for."""
        before = self._rows.get(chunk, ({}, 0))[0]
        if row:
            self._rows[chunk] = (row, modified)
        else:
            self._rows.pop(chunk, None)
        return {*before, *row}

    def codes(self, variable: str, uids: Uids, intern: Callable[[ValueSet], int]) -> Codes:
        """For each uid the override's value set, in the caller's codes; 0 where there is none."""
        found = np.zeros(len(uids), dtype=np.int32)
        chunks = uids // CHUNK
        for chunk in self._chunks(chunks):
            field = self._rows[chunk][0].get(variable)
            if field is not None:
                table = np.array([0, *map(intern, field.words)], dtype=np.int32)
                here = np.flatnonzero(chunks == chunk)
                found[here] = table[field.cells()[uids[here] - chunk * CHUNK]]
        return found

    def revisions(self, variable: str, uids: Uids) -> Uids:
        """For each uid the revision at which its override was last changed; 0 where it never had one."""
        found = np.zeros(len(uids), dtype=np.int64)
        chunks = uids // CHUNK
        for chunk in self._chunks(chunks):
            row, modified = self._rows[chunk]
            if variable in row:
                here = np.flatnonzero(chunks == chunk)
                revisions = np.frombuffer(row[variable].revisions, dtype=_LARGE)[uids[here] - chunk * CHUNK]
                found[here] = np.where(revisions == _NOW, modified, revisions)
        return found

    def of(self, uid: int) -> dict[str, Cell]:
        """Every override of one node, by variable."""
        row, modified = self._rows.get(uid // CHUNK, ({}, 0))
        return {
            variable: cell
            for variable, field in row.items()
            if (cell := _cell(field, uid % CHUNK, modified)) is not None
        }

    def _chunks(self, chunks: Uids) -> list[int]:
        return [chunk for chunk in distinct(chunks).tolist() if chunk in self._rows]


class Edit(msgspec.Struct, frozen=True):
    """A row after an edit, and what became of each asked-for cell, aligned with the offsets."""

    row: Row
    changed: Mask
    conflicts: Mapping[int, str]
    """Position → the variable that somebody changed after ``if_match``, to something else than is wanted now. Such a
    node is left alone."""


def edit(
    row: Row,
    modified: int,
    offsets: Uids,
    wanted: Mapping[str, ValueSet | None],
    author: str,
    if_match: int | None = None,
    rivals: Mapping[str, Collection[str]] | None = None,
    *,
    amend: bool = False,
) -> Edit:
    """Set (or with None unset) variables for the nodes at ``offsets`` of a row. Cells that already say so stay, unless
    one of ``rivals`` (variable → those that may not be true together with it) was set later: the last word counts.
    With ``amend`` a cell keeps its revision, so that the last word stays whose it was."""
    conflicts: dict[int, str] = {}
    new: Row = {variable: _settled(field, modified) for variable, field in row.items()}
    if if_match is not None:
        for variable in wanted:
            if variable in new:
                late = np.frombuffer(new[variable].revisions, dtype=_LARGE)[offsets] > if_match
                # Who finds just what it wants has no quarrel; least of all with itself, after a restart.
                late &= new[variable].cells()[offsets] != _interned(new[variable].words, wanted[variable])[1]
                for at in np.flatnonzero(late).tolist():
                    conflicts.setdefault(at, variable)
    free = np.ones(len(offsets), dtype=np.bool_)
    free[list(conflicts)] = False
    changed = np.zeros(len(offsets), dtype=np.bool_)
    for variable, values in wanted.items():
        others = [row[name] for name in (rivals or {}).get(variable, ()) if name in row and name not in wanted]
        outdone = _newest(others, offsets, modified) > _newest(
            [row[variable]] if variable in row else [], offsets, modified
        )
        field, touched = _set(new.get(variable), offsets, free, values, author, outdone & (not amend), amend)
        changed |= touched
        if field is None:
            new.pop(variable, None)
        else:
            new[variable] = field
    return Edit(new, changed, conflicts)


def wiped(row: Row, modified: int, offset: int) -> Row:
    """The row without any trace of the node at ``offset``; variables that nobody has a cell for are gone."""
    new: Row = {}
    for variable, field in row.items():
        field = _settled(field, modified)
        codes, author_codes = (np.frombuffer(part, dtype=_SMALL).copy() for part in (field.codes, field.author_codes))
        revisions = np.frombuffer(field.revisions, dtype=_LARGE).copy()
        codes[offset] = author_codes[offset] = revisions[offset] = 0
        if revisions.any():
            new[variable] = _packed(field.words, codes, field.authors, author_codes, revisions)
    return new


def _set(
    field: Field | None, offsets: Uids, free: Mask, values: ValueSet | None, author: str, outdone: Mask, amend: bool
) -> tuple[Field | None, Mask]:
    if field is None:
        if values is None:
            return None, np.zeros(len(offsets), dtype=np.bool_)
        field = Field((), bytes(CHUNK * 2), (), bytes(CHUNK * 2), bytes(CHUNK * 8))
    codes, author_codes = (np.frombuffer(part, dtype=_SMALL).copy() for part in (field.codes, field.author_codes))
    revisions = np.frombuffer(field.revisions, dtype=_LARGE).copy()
    words, code = _interned(field.words, values)
    authors, author_code = _interned(field.authors, author if values is not None else None)
    touched: Mask = free & ((codes[offsets] != code) | (outdone & (code != 0)))
    cells = offsets[touched]
    codes[cells], author_codes[cells] = code, author_code
    revisions[cells] = np.where(revisions[cells] == 0, _EARLIEST, revisions[cells]) if amend else _NOW
    return _packed(words, codes, authors, author_codes, revisions), touched


def _newest(fields: Sequence[Field], offsets: Uids, modified: int) -> Uids:
    """Per offset: when the last of these cells that say something was written; 0: none does."""
    found = np.zeros(len(offsets), dtype=np.int64)
    for field in fields:
        revisions = np.frombuffer(_settled(field, modified).revisions, dtype=_LARGE)[offsets]
        found = np.maximum(found, np.where(field.cells()[offsets] != 0, revisions, 0))
    return found


def _interned(table: tuple[Any, ...], word: Any) -> tuple[tuple[Any, ...], int]:
    if word is None:
        return table, 0
    if word in table:
        return table, table.index(word) + 1
    return (*table, word), len(table) + 1


def _packed(
    words: tuple[ValueSet, ...],
    codes: npt.NDArray[np.int16],
    authors: tuple[str, ...],
    author_codes: npt.NDArray[np.int16],
    revisions: npt.NDArray[np.int64],
) -> Field:
    """Drop words and authors that no cell uses any more: a row must not grow with its past."""
    return Field(*_trimmed(words, codes), *_trimmed(authors, author_codes), revisions.tobytes())


def _trimmed(table: tuple[Any, ...], column: npt.NDArray[np.int16]) -> tuple[tuple[Any, ...], bytes]:
    used = distinct(column[column > 0])
    moved = np.zeros(len(table) + 1, dtype=_SMALL)
    moved[used] = np.arange(1, len(used) + 1)
    return tuple(table[code - 1] for code in used.tolist()), moved[column].tobytes()


def _settled(field: Field, modified: int) -> Field:
    """With the row's own revision in the cells that could not know it when they were written."""
    revisions = np.frombuffer(field.revisions, dtype=_LARGE)
    written = revisions == _NOW
    if not written.any():
        return field
    return msgspec.structs.replace(field, revisions=np.where(written, modified, revisions).astype(_LARGE).tobytes())


def _cell(field: Field, offset: int, modified: int) -> Cell | None:
    code = int(field.cells()[offset])
    if not code:
        return None
    author = int(np.frombuffer(field.author_codes, dtype=_SMALL)[offset])
    revision = int(np.frombuffer(field.revisions, dtype=_LARGE)[offset])
    author_name = field.authors[author - 1] if author else ""
    return Cell(field.words[code - 1], author_name, modified if revision == _NOW else revision)
