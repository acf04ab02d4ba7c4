"""Alerts: events that somebody should know of, one for each trouble however often it is reported.

The store has the alerts (``alert/is/ID``) and the acknowledgements (``alert/ack/ID``), memory has all of both. An
alert is written when it opens, gets worse or ends; that it was seen again, at most once a minute. A storm is worked off
in slices and written in batches, so that nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from strata.core.errors import NotFound, StrataError
from strata.hardware.bmc import Severity
from strata.hardware.events.alerts_book import AlertSettings, Book
from strata.hardware.events.alerts_record import Acknowledgement, Alert
from strata.hardware.events.event import HardwareEvent
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

PREFIX = "alert/"
_IS, _ACK = "alert/is/", "alert/ack/"
_SLICE = 500
"""Events that are worked off before others have their turn: a few milliseconds."""
_BATCH = 1000
_BATCH_BYTES = 1 << 20
_RETRY_AFTER = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode_alert = msgspec.msgpack.Decoder(Alert).decode
_decode_ack = msgspec.msgpack.Decoder(Acknowledgement).decode


class Alerts:
    """All alerts. ``take`` is an ``EventSink``; ``tell`` hears of each that opened, got worse or ended."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        *,
        owner: str,
        tell: Callable[[Sequence[Alert]], None] = lambda _: None,
        settings: AlertSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or AlertSettings()
        self._book = Book(owner, self.settings)
        self._store = store
        self._ledger = ledger
        self._tell = tell
        self._clock = clock
        self._followed = Followed(store, PREFIX, self._changed, self._book.clear)
        self._inbox: deque[HardwareEvent] = deque()
        self._recounted = 0.0
        self._turn = asyncio.Lock()
        self._writing = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what the store has, and begin to take events."""
        await self._followed.start()
        self._recounted = self._clock()
        self._task = asyncio.create_task(self._work(), name="alerts")

    async def stop(self) -> None:
        """Write what was not yet, as far as the store lets us."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            while self._inbox:
                self._apply_some()
            self._book.urgent |= self._book.recount
            with suppress(StrataError):
                await self._write_all()
        await self._followed.stop()

    @property
    def alerts(self) -> Mapping[str, Alert]:
        """All of them, by id."""
        return self._book.alerts

    @property
    def acknowledgements(self) -> Mapping[str, Acknowledgement]:
        """By the id of the alert."""
        return self._book.acknowledgements

    @property
    def refused(self) -> int:
        """Events that found no room."""
        return self._book.refused

    def troubles(self, subject: str) -> dict[str, Severity]:
        """What is the matter with a node (or a controller without one), and how bad it is: by key."""
        return self._book.troubles(subject)

    def open_on(self, subject: str) -> list[Alert]:
        """The alerts of a node (or a controller without one) that are not over, in no order."""
        return self._book.open_on(subject)

    def take(self, events: Sequence[HardwareEvent]) -> None:
        """Open, update or end the alerts that these events are about."""
        room = max(0, self.settings.waiting - len(self._inbox))
        self._inbox.extend(events if len(events) <= room else events[:room])
        self._book.refused += max(0, len(events) - room)
        self._idle.clear()
        self._wake.set()

    async def settled(self) -> None:
        """Until everything that was taken is applied and written."""
        await self._idle.wait()

    async def acknowledge(self, author: str, idents: Sequence[str], note: str) -> None:
        """``author`` looks after these alerts. Recorded in the audit log."""
        ops: list[Op] = []
        for ident in dict.fromkeys(idents):
            alert = self.alerts.get(ident)
            if alert is None:
                raise NotFound("no such alert", where=repr(ident)[:80], hint="list them with: strata alert list")
            made = Acknowledgement(by=author, note=note, time=self._clock(), first=alert.first, worst=alert.worst)
            ops.append(Put(_ACK + ident, _encode(made)))
        detail = {"count": len(ops), "ids": [op.key.removeprefix(_ACK) for op in ops[:100]], "note": note}
        revision = await self._ledger.commit_many(author, "acknowledge-alert", "alert", ops, detail=detail)
        for op in ops:
            assert isinstance(op, Put)
            self._followed.wrote(op.key, op.value, revision)

    async def prune(self, keep: float | None = None) -> int:
        """Remove what has been over for long enough; how many. Any controller may: it is the same for all."""
        before = self._clock() - (self.settings.keep_over if keep is None else keep)
        async with self._turn:  # an alert that opens meanwhile is written after this
            old = [ident for ident, alert in self.alerts.items() if alert.over and alert.changed <= before]
            stray = [ident for ident in self.acknowledgements if ident not in self.alerts]
            keys = [_IS + ident for ident in old]
            keys += [_ACK + ident for ident in (*old, *stray) if ident in self.acknowledgements]
            step = min(self._store.max_ops, _BATCH)
            for i in range(0, len(keys), step):
                revision = await self._store.txn([Delete(key) for key in keys[i : i + step]])
                for key in keys[i : i + step]:
                    self._followed.wrote(key, None, revision)
        return len(old)

    # events

    async def _work(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._do()
            except StrataError as error:
                log.warning(
                    "alerts wait for the store", extra={"reason": str(error), "waiting": len(self._book.urgent)}
                )
                self._wake.set()
                await asyncio.sleep(_RETRY_AFTER)
                continue
            if not self._inbox:
                self._idle.set()

    async def _do(self) -> None:
        book = self._book
        while self._inbox:
            self._apply_some()
            await asyncio.sleep(0)
            if len(book.urgent) >= _BATCH:
                await self._write_all()
        self._hear(book.settle(self._clock()))
        if self._clock() - self._recounted >= self.settings.recount_every:
            self._recounted = self._clock()
            book.urgent |= book.recount
        await self._write_all()
        if book.crowded:
            book.crowded = False
            gone = await self.prune(keep=0)
            log.error("more alerts than are kept", extra={"refused": self.refused, "over_and_removed": gone})

    def _patience(self) -> float | None:
        """Seconds until there is something to do without any event."""
        due = list(self._book.settling.values())
        if self._book.recount:
            due.append(self._recounted + self.settings.recount_every)
        return max(0.05, min(due) - self._clock()) if due else None

    def _apply_some(self) -> None:
        now, news = self._clock(), []
        for _ in range(min(_SLICE, len(self._inbox))):
            alert = self._book.apply(self._inbox.popleft(), now)
            if alert is not None:
                news.append(alert)
        self._hear(news)

    def _hear(self, news: Sequence[Alert]) -> None:
        if news:
            self._tell(news)

    # the store

    async def _write_all(self) -> None:
        async with self._turn:
            while self._book.urgent:
                await self._write_some()

    async def _write_some(self) -> None:
        book = self._book
        batch, size = dict[str, Put](), 0
        for ident in book.urgent:
            put = Put(_IS + ident, _encode(book.alerts[ident]))
            batch[ident] = put
            size += len(put.value)
            if len(batch) >= min(self._store.max_ops, _BATCH) or size > _BATCH_BYTES:
                break
        for ident in batch:
            del book.urgent[ident]
            book.recount.pop(ident, None)
        try:
            revision = await self._store.txn(list(batch.values()))
        except (StrataError, asyncio.CancelledError):
            # Whether or not it happened: writing the newest state once more does no harm.
            book.urgent = dict.fromkeys(batch) | book.urgent
            raise
        self._writing = True
        for put in batch.values():
            self._followed.wrote(put.key, put.value, revision)
        self._writing = False

    def _changed(self, key: str, value: bytes | None) -> None:
        """The store has this record now. One that was changed here meanwhile is written again soon."""
        ident = key.rpartition("/")[2]
        if self._writing or (key.startswith(_IS) and self._book.pending(ident)):
            return
        try:
            if key.startswith(_ACK):
                if value is None:
                    self._book.acknowledgements.pop(ident, None)
                else:
                    self._book.acknowledgements[ident] = _decode_ack(value)
            elif value is None:
                self._book.remove(ident)
            else:
                self._book.put(_decode_alert(value))
        except msgspec.MsgspecError:
            log.error("unreadable alert record", extra={"key": key})
