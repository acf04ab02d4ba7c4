"""The one way to keep records: loaded, decoded, at hand in memory, changed by compare-and-swap, audited.

A kind of record has a word (``webhook``), a prefix (``webhook/``) and a type. The word makes the audit log's action
(``webhook.put``), the error for one that is not there, and the conflict of two who change the same one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from strata.core.errors import Conflict, NotFound
from strata.store.audit import MAX_BYTES, Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

R = TypeVar("R", bound=msgspec.Struct)
Changed = Callable[[str, R | None], None]

ATTEMPTS = 20
"""How often a change is tried again when somebody else keeps changing the same."""
_encode = msgspec.msgpack.Encoder().encode


def expected_revision(what: str, expected: int | None, actual: int) -> None:
    """Raise ``Conflict`` unless the caller has seen the newest revision (None: it does not care)."""
    if expected is not None and expected != actual:
        detail = f"it is at revision {actual}, not {expected}" if actual else "it does not exist"
        raise Conflict(detail, revision=actual, where=what, hint="read it again, then decide again")


def too_contended(what: str) -> Conflict:
    """Others changed the same thing every time."""
    return Conflict(f"others kept changing it ({ATTEMPTS} attempts)", where=what, hint="try again")


def nobody(name: str, record: Any) -> None:
    """Nobody is told of changes."""


class Records(Generic[R]):
    """All records of one kind, by name. ``start`` before use, then ``stop``."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        type_: type[R],
        *,
        kind: str,
        prefix: str = "",
        listed_by: str = "",
        called: str = "",
        changed: Changed[R] = nobody,
        cleared: Callable[[], None] = lambda: None,
    ) -> None:
        """``kind``: the word for one of them. ``prefix``: of their keys, the word and a slash unless given.
        ``listed_by``: the command that lists them. ``called``: what people call one, the word unless given.
        ``changed``: told of each that came, changed or went (None), whoever did it; ``cleared``: that all are
        about to be told anew."""
        self._store = store
        self._ledger = ledger
        self._kind = kind
        self._called = called or kind.replace("-", " ")
        self._prefix = prefix or f"{kind}/"
        self._listed_by = listed_by
        self._changed = changed
        self._cleared = cleared
        self._decode = msgspec.msgpack.Decoder(type_).decode
        self._found: dict[str, R] = {}
        self._followed = Followed(store, self._prefix, self._take, self._clear)
        self.start = self._followed.start
        self.stop = self._followed.stop

    # reading

    @property
    def all(self) -> Mapping[str, R]:
        """Every record by name."""
        return self._found

    @property
    def sorted(self) -> Sequence[tuple[str, R]]:
        """Names and records, by name."""
        return sorted(self._found.items())

    def find(self, name: str) -> R | None:
        """One of them, or None."""
        return self._found.get(name)

    def get(self, name: str) -> R:
        """One of them, or ``NotFound``."""
        found = self._found.get(name)
        if found is None:
            raise self._missing(name)
        return found

    def revision(self, name: str) -> int:
        """The store's revision of a record; 0: there is none."""
        return self._followed.revisions.get(self._prefix + name, 0)

    async def fetch(self, name: str) -> R | None:
        """One as the store has it now: another controller may just have written it."""
        revision = await self._store.revision()
        entry = await self._store.get(self._prefix + name)
        value, modified = (entry.value, entry.modified) if entry else (None, revision)
        self._followed.wrote(self._prefix + name, value, modified)
        return self._found.get(name)

    # writing

    async def put(
        self,
        author: str,
        name: str,
        record: R,
        *,
        expected: int | None = None,
        action: str = "put",
        detail: Mapping[str, Any] | None = None,
        also: Sequence[Op] = (),
        lease: int = 0,
    ) -> R:
        """Create or replace one. ``expected``: the revision that the caller has seen (0: none must be there; None:
        whatever is there). ``also``: written in the same transaction. ``lease``: that it ends with."""
        await self.change(
            author, name, lambda _: record, expected=expected, action=action, detail=detail, also=also, lease=lease
        )
        return record

    async def delete(
        self,
        author: str,
        name: str,
        *,
        expected: int | None = None,
        action: str = "delete",
        detail: Mapping[str, Any] | None = None,
        also: Sequence[Op] = (),
    ) -> None:
        """Remove one; ``NotFound`` if it is not there."""
        await self.change(author, name, lambda _: None, expected=expected, action=action, detail=detail, also=also)

    async def change(
        self,
        author: str,
        name: str,
        make: Callable[[R | None], R | None],
        *,
        expected: int | None = None,
        action: str = "put",
        detail: Mapping[str, Any] | None = None,
        also: Sequence[Op] = (),
        lease: int = 0,
    ) -> R | None:
        """Make the record of what is there now, as the store has it; None removes it. Tried again where somebody else
        changes it meanwhile, unless the caller ``expected`` a revision."""
        key = self._prefix + name
        for _ in range(ATTEMPTS):
            entry = await self._store.get(key)
            modified = entry.modified if entry else 0
            expected_revision(f"{self._kind} {name}", expected, modified)
            record = make(None if entry is None else self._readable(key, entry.value))
            if record is None and entry is None:
                raise self._missing(name)
            value = None if record is None else _encode(record)
            op = Delete(key) if value is None else Put(key, value, lease)
            try:
                revision = await self._ledger.commit(
                    author, f"{self._kind}.{action}", name, [op, *also], {key: modified}, detail
                )
            except Conflict:
                continue  # somebody was faster: again, on top of theirs
            self._followed.wrote(key, value, revision)
            return record
        raise too_contended(f"{self._kind} {name}")

    def prepared(self, name: str, record: R | None) -> tuple[Op, Mapping[str, int]]:
        """What puts one in place (None: removes it), and the revision that this goes by: for a transaction that others
        commit together with more. ``fetch`` brings it in at once then; the watch does a little later."""
        key = self._prefix + name
        op = Delete(key) if record is None else Put(key, _encode(record))
        return op, {key: self.revision(name)}

    async def change_all(
        self, author: str, name: str, make: Callable[[Mapping[str, R]], Mapping[str, R]], *, action: str
    ) -> None:
        """Replace those that ``make`` gives, made of all that the store has now: all of them, or none. ``name``: whom
        the audit log says it is about."""
        for _ in range(ATTEMPTS):
            entries = (await self._store.range(self._prefix)).entries
            there = ((entry.key, self._readable(entry.key, entry.value)) for entry in entries)
            found = make({key.removeprefix(self._prefix): record for key, record in there if record is not None})
            values = {self._prefix + one: _encode(record) for one, record in found.items()}
            expect = {entry.key: entry.modified for entry in entries}
            if not values:
                return
            try:
                ops = [Put(key, value) for key, value in values.items()]
                revision = await self._ledger.commit(author, f"{self._kind}.{action}", name, ops, expect)
            except Conflict:
                continue
            for key, value in values.items():
                self._followed.wrote(key, value, revision)
            return
        raise too_contended(f"{self._kind} {name}")

    async def note_all(self, records: Mapping[str, R | None]) -> set[str]:
        """Replace (None: remove) many that are known here, in as few transactions as that takes. Not in the audit log:
        for what was seen, and not asked for. Which of them somebody else had changed meanwhile; those stay as they
        are."""
        left: list[tuple[str, bytes | None, int]] = []
        for name, record in records.items():
            key = self._prefix + name
            left.append((key, None if record is None else _encode(record), self.revision(name)))
        failed: set[str] = set()
        while left:
            size, count = 0, 0
            while count < min(len(left), self._store.max_ops) and (not count or size < MAX_BYTES):
                size += len(left[count][1] or b"")
                count += 1
            part, left = left[:count], left[count:]
            failed |= await self._note(part)
        return failed

    async def _note(self, part: Sequence[tuple[str, bytes | None, int]]) -> set[str]:
        ops: list[Op] = [Delete(key) if value is None else Put(key, value) for key, value, _ in part]
        try:
            revision = await self._store.txn(ops, expect={key: known for key, _, known in part})
        except Conflict:
            if len(part) == 1:
                return {part[0][0].removeprefix(self._prefix)}
            half = len(part) // 2
            return await self._note(part[:half]) | await self._note(part[half:])
        for key, value, _ in part:
            self._followed.wrote(key, value, revision)
        return set()

    def _missing(self, name: str) -> NotFound:
        hint = f"list them with: {self._listed_by}" if self._listed_by else ""
        return NotFound(f"no {self._called} named {name[:80]}", where=self._kind, hint=hint)

    # following

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(self._prefix)
        record = None if value is None else self._readable(key, value)
        if record is None:
            self._found.pop(name, None)
        else:
            self._found[name] = record
        self._changed(name, record)

    def _readable(self, key: str, value: bytes) -> R | None:
        try:
            return self._decode(value)
        except msgspec.MsgspecError as error:
            # One that cannot be read is nobody's reason to lose the others, and can be replaced.
            log.error("a record cannot be read", extra={"key": key, "reason": str(error)})
            return None

    def _clear(self) -> None:
        self._found.clear()
        self._cleared()
