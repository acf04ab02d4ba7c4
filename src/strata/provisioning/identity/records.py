"""Boot records: one per node in the store, all in memory, changed by compare-and-swap.

Many nodes boot at once: changes that arrive together are written together. Knows nothing of tokens and certificates
but that they have a hash and a serial number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from strata.core.errors import Conflict, StrataError, Unavailable
from strata.store.followed import Followed
from strata.store.protocol import Put, Store

log = logging.getLogger(__name__)

PREFIX = "boot/node/"

_GATHER = 0.002  # seconds in which changes are gathered into one transaction
_MOST = 1000  # changes in one transaction, where the store would take more
_TRIES = 20  # against others who change the same record


class BootRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a node's boots went. Holds no secret: of the token only the hash."""

    generation: int = 0
    """Boots whose data was handed out, counted since the node is known."""
    token: bytes = b""
    """SHA-256 of the current generation's token."""
    expires: float = 0.0
    """When the token ends."""
    opened: float = 0.0
    """When this generation's boot data was handed out."""
    redeemed: float = 0.0
    """When the token was redeemed; 0: not yet."""
    serial: str = ""
    """The certificate in force."""
    former: str = ""
    """The one before it in the same generation: good until the newer one has been seen, since a reply may be lost."""
    ends: float = 0.0
    """When the certificate in force expires."""
    attempts: int = 0
    """Generations in a row that nobody redeemed, this one included."""
    forgiven: int = 0
    """So many of them are not held against the node any more: it was held for them once."""
    revoked: tuple[str, ...] = ()
    """The certificates that a person revoked last; also after the node got another."""
    revoked_by: str = ""
    revoked_at: float = 0.0

    @property
    def failures(self) -> int:
        """Boots in a row that did not arrive and that the node was not held for yet."""
        return self.attempts - self.forgiven

    @property
    def is_revoked(self) -> bool:
        """The node's certificate was taken from it, and it has not booted since."""
        return bool(self.revoked) and not self.serial

    def __repr__(self) -> str:
        return f"BootRecord({self.generation}, attempts={self.attempts}, serial={self.serial!r})"


Decide = Callable[[BootRecord], BootRecord]
"""From a record to the one that shall replace it; raises to leave it as it is."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BootRecord).decode
_NEW = BootRecord()


class _Change(msgspec.Struct):
    node: str
    record: BootRecord
    expected: int
    done: asyncio.Future[bool]
    """True: written. False: somebody else was first."""


class Records:
    """All boot records. Reading never waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[str, BootRecord] = {}
        self._pending: dict[str, _Change] = {}
        self._busy: dict[str, asyncio.Future[bool]] = {}
        """Nodes whose record is being written."""
        self._writer: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._followed = Followed(store, PREFIX, self._take, self._records.clear)

    async def start(self) -> None:
        """Load all records, then follow their changes until ``stop``."""
        await self._followed.start()
        self._writer = asyncio.create_task(self._write(), name="boot records")

    async def stop(self) -> None:
        """End the watch. Changes that nobody was told of are not made."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
            self._writer = None
        for change in self._pending.values():
            change.done.cancel()
        self._pending.clear()
        await self._followed.stop()

    def get(self, node: str) -> BootRecord:
        """The record of ``node``; an empty one if it never booted."""
        return self._records.get(node, _NEW)

    async def refresh(self, node: str) -> None:
        """Read the record of ``node`` anew: another controller may have changed it a moment ago."""
        if node not in self._busy:
            await self._read_again(node)

    async def change(self, node: str, decide: Decide) -> BootRecord:
        """Replace the record by what ``decide`` makes of it, durably. It is asked again when somebody else was
        first: exactly one of two who want the same wins."""
        for _ in range(_TRIES):
            if busy := self._busy.get(node):
                await asyncio.wait([busy])
                continue
            record = decide(self.get(node))
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._busy[node] = done
            done.add_done_callback(lambda future: self._settled(node, future))
            self._pending[node] = _Change(node, record, self._followed.revisions.get(PREFIX + node, 0), done)
            self._wake.set()
            if await asyncio.shield(done):
                return record
            await self._read_again(node)
        raise Unavailable("the node's boot record is changed too often", where=node, hint="try again")

    def _settled(self, node: str, future: asyncio.Future[bool]) -> None:
        del self._busy[node]
        if not future.cancelled():
            future.exception()  # whoever asked may have left

    async def _read_again(self, node: str) -> None:
        key = PREFIX + node
        entry = await self._store.get(key)
        if entry is not None:
            self._followed.wrote(key, entry.value, entry.modified)
        elif key in self._followed.revisions:
            # Whoever comes after that revision is not missed: it is read before it is looked again.
            revision = await self._store.revision()
            if await self._store.get(key) is None:
                self._followed.wrote(key, None, revision)

    async def _write(self) -> None:
        most = min(_MOST, self._store.max_ops)
        while True:
            await self._wake.wait()
            await asyncio.sleep(_GATHER)
            self._wake.clear()
            changes = list(self._pending.values())
            self._pending.clear()
            for first in range(0, len(changes), most):
                await self._write_some(changes[first : first + most])

    async def _write_some(self, changes: list[_Change]) -> None:
        """All in one transaction; one by one if a record among them is not as expected."""
        ops = [Put(PREFIX + change.node, _encode(change.record)) for change in changes]
        expect = {PREFIX + change.node: change.expected for change in changes}
        try:
            revision = await self._store.txn(ops, expect=expect)
        except Conflict:
            if len(changes) == 1:
                changes[0].done.set_result(False)
            else:
                for change in changes:
                    await self._write_some([change])
        except StrataError as error:
            for change in changes:
                change.done.set_exception(error)
        except BaseException:
            for change in changes:
                change.done.cancel()
            raise
        else:
            for change, op in zip(changes, ops, strict=True):
                self._followed.wrote(op.key, op.value, revision)
                change.done.set_result(True)

    def _take(self, key: str, value: bytes | None) -> None:
        node = key.removeprefix(PREFIX)
        if value is None:
            self._records.pop(node, None)
            return
        try:
            self._records[node] = _decode(value)
        except msgspec.DecodeError:
            log.error("a boot record cannot be read", extra={"node": node})
