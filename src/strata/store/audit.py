"""The ledger: every write that somebody asked for, with its author, in a chain of hashes.

A change and its record are one transaction, so there is neither without the other. Each record holds the hash
of the one before it; ``audit/head`` names the newest. Whoever alters, reorders or removes a record breaks
the chain, and ``verify`` says where.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Conflict, OutcomeUnknown, Unavailable
from strata.core.redact import redact
from strata.store.protocol import Delete, Entry, Op, Put, Store

HEAD = "audit/head"
CHECKPOINT = "audit/checkpoint"
PRUNE = "audit.prune"
GENESIS = "0" * 64

MAX_BYTES = 1 << 20
"""What ``commit_many`` puts into one transaction; etcd takes 1.5 MiB in a request."""

_ATTEMPTS = 200
_PAGE = 1000


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One record: who did what to what, and when."""

    seq: int
    time: float
    author: str
    action: str
    target: str
    detail: dict[str, Any]
    prev: str
    hash: str


class Checkpoint(msgspec.Struct, frozen=True):
    """Where the kept part of the chain begins: after record ``seq``, whose hash is ``hash``."""

    seq: int = 0
    hash: str = GENESIS


class AuditReport(msgspec.Struct, frozen=True):
    """What ``verify`` found. ``first_bad`` is the number of the first record that does not fit."""

    ok: bool
    count: int
    first_bad: int | None = None
    reason: str = ""


class _Head(msgspec.Struct, frozen=True):
    seq: int
    hash: str


def audit_key(seq: int) -> str:
    """The key of record ``seq``."""
    return f"audit/{seq:016d}"


def entry_hash(entry: AuditEntry) -> str:
    """SHA-256 over the record before it and everything that this one says."""
    fields = (entry.seq, entry.time, entry.author, entry.action, entry.target, entry.detail, entry.prev)
    return hashlib.sha256(_canonical.encode(fields)).hexdigest()


_canonical = msgspec.json.Encoder(order="sorted")
_encode = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(AuditEntry).decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode


class Ledger:
    """Writes to ``store`` on somebody's behalf."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self.clock = clock
        self._turn = asyncio.Lock()
        self._head: tuple[_Head, int] | None = None

    @property
    def room(self) -> int:
        """The most operations that one ``commit`` takes."""
        return self._store.max_ops - 2

    async def commit(
        self,
        author: str,
        action: str,
        target: str,
        ops: Sequence[Op],
        expect: Mapping[str, int] | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Do ``ops`` and record it, in one transaction; return the revision. Raises ``Conflict`` when ``expect``
        does not hold. Secrets in ``detail`` are blacked out, but are better not given."""
        self._check(author, ops)
        said = redact(dict(detail or {}))
        async with self._turn:
            for _ in range(_ATTEMPTS):
                head, modified = self._head or await self._read_head()
                entry = self._next(head, author, action, redact(target), said)
                try:
                    return await self._try(entry, modified, ops, expect or {})
                except Conflict as error:
                    self._head = None
                    if error.where != HEAD:
                        raise
                except OutcomeUnknown:
                    self._head = None
                    # The chain itself tells whether it happened: our record is in it, or our place is still free.
                    written = await self._store.get(audit_key(entry.seq))
                    if written is not None and _decode_entry(written.value).hash == entry.hash:
                        return written.modified
        raise Unavailable("the audit log is too busy; nothing was changed", hint="try again")

    async def commit_many(
        self,
        author: str,
        action: str,
        target: str,
        ops: Sequence[Op],
        expect: Mapping[str, int] | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """As ``commit``, for any number of operations: several transactions, each recorded, in order. An
        expectation is checked in the transaction that touches its key (the first, for a key that none touches).
        When one fails those before it stay; the error tells."""
        parts = self.parts(ops)
        left = dict(expect or {})
        touched = {op.key for op in ops}
        revision = 0
        for number, part in enumerate(parts, 1):
            keys = {op.key for op in part}
            mine = {k: v for k, v in left.items() if k in keys or (number == 1 and k not in touched)}
            more = {"part": number, "parts": len(parts)} if len(parts) > 1 else {}
            revision = await self.commit(author, action, target, part, mine, {**(detail or {}), **more})
        return revision

    def parts(self, ops: Sequence[Op]) -> list[Sequence[Op]]:
        """The transactions that ``commit_many`` makes of ``ops``."""
        return list(_parts(ops, self.room))

    async def entries(self, since: int = 0, limit: int = 100) -> list[AuditEntry]:
        """Records with a number above ``since``, oldest first."""
        page = await self._store.range("audit/0", after=audit_key(since), limit=limit)
        return [_decode_entry(e.value) for e in page.entries]

    async def latest(self, limit: int = 100) -> list[AuditEntry]:
        """The newest records, newest first."""
        head, _ = await self._read_head()
        return (await self.entries(max(0, head.seq - limit), limit))[::-1]

    async def prune(self, before: float, author: str) -> int:
        """Remove the records from before the time ``before``; return how many. What is left still verifies:
        a checkpoint, itself recorded in the chain, says where it begins."""
        last: AuditEntry | None = None
        start = 0
        while last is None or last.time < before:
            page = await self.entries(start, _PAGE)
            old = [e for e in page if e.time < before]
            if old:
                last, start = old[-1], old[-1].seq
            if len(old) < _PAGE:
                break
        if last is None:
            return 0
        checkpoint = Checkpoint(last.seq, last.hash)
        said = {"through": last.seq, "hash": last.hash}
        await self.commit(author, PRUNE, "audit", [Put(CHECKPOINT, _encode(checkpoint))], detail=said)
        return await self._sweep(last.seq)

    async def _sweep(self, through: int) -> int:
        # The records were let go by the recorded checkpoint, so their removal is no change of its own.
        count = 0
        while True:
            page = await self._store.range("audit/0", limit=min(self._store.max_ops, _PAGE))
            gone = [Delete(e.key) for e in page.entries if e.key <= audit_key(through)]
            if gone:
                await self._store.txn(gone)
                count += len(gone)
            if len(gone) < len(page.entries) or not page.more:
                return count

    def _check(self, author: str, ops: Sequence[Op]) -> None:
        if not author:
            raise BadRequest("every write has an author", where="author")
        if len(ops) > self.room:
            raise BadRequest(f"{len(ops)} operations; one commit takes {self.room}", hint="use commit_many")
        for op in ops:
            if op.key.startswith("audit/") and op.key != CHECKPOINT:
                raise BadRequest("the audit log is written by the ledger only", where=op.key)

    async def _read_head(self) -> tuple[_Head, int]:
        found = await self._store.get(HEAD)
        if found is None:
            return _Head(0, GENESIS), 0
        return _decode_head(found.value), found.modified

    def _next(self, head: _Head, author: str, action: str, target: str, detail: dict[str, Any]) -> AuditEntry:
        entry = AuditEntry(
            seq=head.seq + 1,
            time=self.clock(),
            author=author,
            action=action,
            target=target,
            detail=detail,
            prev=head.hash,
            hash="",
        )
        return msgspec.structs.replace(entry, hash=entry_hash(entry))

    async def _try(self, entry: AuditEntry, head: int, ops: Sequence[Op], expect: Mapping[str, int]) -> int:
        new_head = _Head(entry.seq, entry.hash)
        record = [Put(audit_key(entry.seq), _encode(entry)), Put(HEAD, _encode(new_head))]
        revision = await self._store.txn([*ops, *record], expect={HEAD: head, **expect})
        self._head = (new_head, revision)
        return revision


def _parts(ops: Sequence[Op], room: int) -> Iterator[Sequence[Op]]:
    part: list[Op] = []
    size = 0
    for op in ops:
        weight = len(op.key) + (len(op.value) if isinstance(op, Put) else 0)
        if part and (len(part) == room or size + weight > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(op)
        size += weight
    yield part


async def verify(store: Store) -> AuditReport:
    """Walk the whole chain at one revision and say whether it is whole."""
    heads = await store.range(HEAD, limit=1)
    checkpoints = await store.range(CHECKPOINT, limit=1, revision=heads.revision)
    head = _decode_head(heads.entries[0].value) if heads.entries else None
    start = _decode_checkpoint(checkpoints.entries[0].value) if checkpoints.entries else Checkpoint()
    chain = _Chain(start)
    after = audit_key(start.seq)
    while chain.bad is None:
        page = await store.range("audit/0", after=after, limit=_PAGE, revision=heads.revision)
        await asyncio.to_thread(chain.walk, page.entries)
        if not page.more:
            break
        after = page.entries[-1].key
    return chain.report(head)


class _Chain:
    """The walk along the records: what was last seen, and the first that does not fit."""

    def __init__(self, start: Checkpoint) -> None:
        self._start = start
        self._seq = start.seq
        self._hash = start.hash
        self._allowed = start.seq == 0
        self.bad: tuple[int, str] | None = None

    def walk(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.bad = self._wrong(entry)
            if self.bad:
                return

    def _wrong(self, stored: Entry) -> tuple[int, str] | None:
        expected = self._seq + 1
        try:
            record = _decode_entry(stored.value)
        except msgspec.MsgspecError as error:
            return expected, f"is not readable: {error}"
        if stored.key != audit_key(expected):
            return expected, "is missing"
        if record.seq != expected:
            return expected, f"holds record {record.seq}: the order was changed"
        if record.prev != self._hash:
            return expected, "does not follow from the record before it"
        if entry_hash(record) != record.hash:
            return expected, "was altered"
        if record.action == PRUNE and record.detail == {"through": self._start.seq, "hash": self._start.hash}:
            self._allowed = True
        self._seq, self._hash = expected, record.hash
        return None

    def report(self, head: _Head | None) -> AuditReport:
        """The verdict, given what the head says."""
        count = self._seq - self._start.seq
        if self.bad:
            return AuditReport(False, count, self.bad[0], f"record {self.bad[0]} {self.bad[1]}")
        if head is None and self._seq == 0:
            return AuditReport(True, 0)
        if head is None or head.seq < self._seq:
            return AuditReport(False, count, self._seq, "the head does not name the newest record")
        if head.seq > self._seq:
            missing = self._seq + 1
            return AuditReport(False, count, missing, f"records {missing} to {head.seq} are missing: it was cut short")
        if head.hash != self._hash:
            return AuditReport(False, count, self._seq, "the newest record is not the one that the head names")
        if not self._allowed:
            return AuditReport(
                False, count, self._start.seq, f"records up to {self._start.seq} were removed, and nobody recorded it"
            )
        return AuditReport(True, count)
