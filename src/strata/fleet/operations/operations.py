"""Work on many nodes that outlives a request and a process: accepted, tracked, cancellable, resumed.

An operation is a row in the store: its kind, its arguments, how far it is. Layers register for each kind the function
that does it. The controller that accepted an operation works on it; when that one's member key (``controller/<name>``)
is gone, another takes it over from the recorded position. Whoever writes the row does so only if nobody else has, so a
controller that lost an operation notices at its next report and stops.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Conflict, NotFound, StrataError, Unavailable
from strata.fleet.operations.records import PREFIX, OperationRow, Work, decode, encode
from strata.fleet.tasks import all_cancelled
from strata.store.audit import Ledger
from strata.store.protocol import Delete, Entry, Put, Store

log = logging.getLogger(__name__)


class OperationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How operations are kept."""

    report_every: float = 1.0
    """Seconds between two writes of progress; also how long a cancel from elsewhere can take to be seen."""
    retry_after: float = 1.0
    """Seconds until work goes on after the store was away; doubles up to 30."""


class Operations:
    """The operations of one controller, and a view of everybody's."""

    def __init__(self, store: Store, ledger: Ledger, *, owner: str, settings: OperationSettings | None = None) -> None:
        self._store = store
        self._ledger = ledger
        self._owner = owner
        self._instance = secrets.token_hex(8)
        self._settings = settings or OperationSettings()
        self._kinds: dict[str, Work] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Event] = {}

    def register(self, kind: str, work: Work) -> None:
        """Say how operations of a kind are done. Before ``start`` and ``recover``."""
        if kind in self._kinds:
            raise BadRequest("registered twice", where=f"operation kind {kind}")
        self._kinds[kind] = work

    async def start(self, kind: str, author: str, total: int, arguments: Mapping[str, Any]) -> OperationRow:
        """Accept an operation: once this returns it is durable, and will be done whatever becomes of this process."""
        if kind not in self._kinds:
            raise BadRequest(f"no such kind of operation; known are {', '.join(sorted(self._kinds))}", where=kind)
        now = time.time()
        operation = OperationRow(
            # In the order of creation, so that a listing needs no sorting; and not to be guessed.
            id=f"{int(now * 1000):011x}{secrets.token_hex(3)}",
            kind=kind,
            author=author,
            created=now,
            arguments=arguments,
            total=total,
            owner=self._owner,
            instance=self._instance,
        )
        key = PREFIX + operation.id
        revision = await self._ledger.commit(
            author,
            "operation.start",
            operation.id,
            [Put(key, encode(operation))],
            {key: 0},
            {"kind": kind, "total": total},
        )
        self._launch(operation, revision)
        return operation

    async def show(self, ident: str) -> OperationRow:
        """An operation as it stands."""
        return decode((await self._entry(ident)).value)

    async def recent(self, limit: int = 100, after: str = "") -> list[OperationRow]:
        """Operations, newest first; ``after`` is the id of the last one that was seen."""
        page = await self._store.range(PREFIX)
        entries = [entry for entry in reversed(page.entries) if not after or entry.key < PREFIX + after]
        return [decode(entry.value) for entry in entries[:limit]]

    async def cancel(self, ident: str, author: str) -> OperationRow:
        """Ask an operation to stop between two chunks. What is done stays done. ``Conflict`` if it is over."""
        while True:
            entry = await self._entry(ident)
            operation = decode(entry.value)
            if operation.over:
                raise Conflict(f"it is {operation.state} already", where=f"operation {ident}", revision=entry.modified)
            if not operation.cancel:
                operation = msgspec.structs.replace(operation, cancel=True)
                if ident not in self._running and not await self._alive(operation):
                    operation = operation.ended("cancelled", time.time())
                op = Put(entry.key, encode(operation))
                try:
                    await self._ledger.commit(author, "operation.cancel", ident, [op], {entry.key: entry.modified})
                except Conflict:
                    continue
            if ident in self._stops:
                self._stops[ident].set()
            return operation

    async def wait(self, ident: str) -> OperationRow:
        """Until an operation that runs here is over."""
        if task := self._running.get(ident):
            await asyncio.wait([task])
        return await self.show(ident)

    async def recover(self) -> list[str]:
        """Take over the unfinished operations whose controller is gone (or was this one, before it was started anew);
        their ids. Call at the start, and when a member key disappears."""
        taken = []
        for entry in (await self._store.range(PREFIX)).entries:
            operation = decode(entry.value)
            if operation.over or operation.id in self._running or await self._alive(operation):
                continue
            operation = msgspec.structs.replace(operation, owner=self._owner, instance=self._instance)
            try:
                revision = await self._store.txn(
                    [Put(entry.key, encode(operation))], expect={entry.key: entry.modified}
                )
            except Conflict:
                continue  # another controller was faster
            log.info(
                "operation taken over",
                extra={"operation": operation.id, "kind": operation.kind, "done": operation.done},
            )
            self._launch(operation, revision)
            taken.append(operation.id)
        return taken

    async def prune(self, before: float) -> int:
        """Forget operations that were over before a time (Unix seconds); how many."""
        old = [
            entry
            for entry in (await self._store.range(PREFIX)).entries
            if (finished := decode(entry.value).finished) is not None and finished < before
        ]
        if old:
            ops = [Delete(entry.key) for entry in old]
            expect = {entry.key: entry.modified for entry in old}
            author = f"controller:{self._owner}"
            await self._ledger.commit_many(author, "operation.prune", f"{len(ops)} operations", ops, expect)
        return len(old)

    async def close(self) -> None:
        """Stop working; unfinished operations go on elsewhere, or here after a restart."""
        await all_cancelled(self._running.values())

    async def _entry(self, ident: str) -> Entry:
        entry = await self._store.get(PREFIX + ident)
        if entry is None:
            hint = "list them with: strata operation list"
            raise NotFound(f"no such operation: {ident[:40]}", where="operation", hint=hint)
        return entry

    async def _alive(self, operation: OperationRow) -> bool:
        """Whether somebody still works on an operation that does not run here."""
        if operation.owner == self._owner:
            return operation.instance == self._instance and operation.id in self._running
        return await self._store.get(f"controller/{operation.owner}") is not None

    def _launch(self, operation: OperationRow, revision: int) -> None:
        self._stops[operation.id] = asyncio.Event()
        task = asyncio.create_task(self._run(operation, revision), name=f"operation-{operation.id}")
        self._running[operation.id] = task
        task.add_done_callback(lambda _: self._forget(operation.id))

    def _forget(self, ident: str) -> None:
        self._running.pop(ident, None)
        self._stops.pop(ident, None)

    async def _run(self, operation: OperationRow, revision: int) -> None:
        run = _Run(self._store, operation, revision, self._stops[operation.id], self._settings)
        wait = self._settings.retry_after
        while not run.over:
            try:
                await run.work(self._kinds.get(operation.kind))
            except _Lost:
                log.info("operation is another controller's now", extra={"operation": operation.id})
                return
            except Unavailable as error:
                log.warning(
                    "operation waits: the store is away", extra={"operation": operation.id, "error": str(error)}
                )
                await asyncio.sleep(wait)
                wait = min(30.0, wait * 2)


class _Lost(Exception):
    """Somebody else writes the operation's row."""


class _Run:
    """One operation being worked on here."""

    def __init__(
        self, store: Store, operation: OperationRow, revision: int, stop: asyncio.Event, settings: OperationSettings
    ) -> None:
        self._store = store
        self._operation = operation
        self._revision = revision
        self._stop = stop
        self._every = settings.report_every
        self._reported = -float("inf")

    @property
    def over(self) -> bool:
        return self._operation.over

    async def work(self, work: Work | None) -> None:
        """Go on from the recorded position to the end, a cancel or an error."""
        if work is None:
            await self._end("failed", f"this version does not know operations of kind {self._operation.kind}")
            return
        await self._report(msgspec.structs.replace(self._operation, state="running"))
        steps = work(self._operation.arguments, self._operation.position)
        try:
            while not self._stopped():
                step = await anext(steps, None)
                if step is None:
                    hopeless = self._operation.total > 0 and self._operation.failed >= self._operation.total
                    await self._end("failed" if hopeless else "done")
                    return
                self._operation = self._operation.after(step)
                if step.durable or time.monotonic() - self._reported >= self._every:
                    await self._report(self._operation)
            await self._end("cancelled")
        except (Unavailable, _Lost):
            raise
        except StrataError as error:
            await self._end("failed", str(error))
        except Exception as error:
            log.exception("operation failed", extra={"operation": self._operation.id})
            await self._end("failed", f"internal error: {type(error).__name__}")
        finally:
            closing = getattr(steps, "aclose", None)
            if closing is not None:
                await closing()

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._operation.cancel

    async def _end(self, state: str, why: str = "") -> None:
        await self._report(self._operation.ended(state, time.time(), why))  # type: ignore[arg-type]

    async def _report(self, operation: OperationRow) -> None:
        """Write the operation's row; a cancel that came from elsewhere is taken in on the way."""
        key = PREFIX + operation.id
        while True:
            try:
                self._revision = await self._store.txn([Put(key, encode(operation))], expect={key: self._revision})
            except Conflict:
                entry = await self._store.get(key)
                now = decode(entry.value) if entry else None
                if entry is None or now is None or (now.owner, now.instance) != (operation.owner, operation.instance):
                    raise _Lost from None
                operation = msgspec.structs.replace(operation, cancel=now.cancel)
                self._revision = entry.modified
                continue
            self._operation = operation
            self._reported = time.monotonic()
            return
