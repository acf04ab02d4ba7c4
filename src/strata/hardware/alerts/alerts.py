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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from strata.core.errors import NotFound, StrataError
from strata.fleet.tasks import cancelled
from strata.hardware.alerts import records as rec
from strata.hardware.alerts.records import Acknowledgement, Alert
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.records import HardwareEvent
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts behave. Times in seconds."""

    recount_every: float = 60.0
    """Between two writes that only say that a known trouble was seen again."""
    keep_over: float = 7 * 86400.0
    """An alert that is over stays listed for so long."""
    once: float = 7 * 86400.0
    """What happened and did not happen again for so long is over: of that nobody tells the end."""
    flaps: int = 3
    """Openings within ``quiet`` of the end before, after which an alert ends only when it was ``quiet``."""
    quiet: float = 600.0
    most: int = 200_000
    """Alerts that are kept; beyond it new ones are only counted, and those that are over are removed."""
    waiting: int = 500_000
    """Events that may wait their turn."""


class AlertBook:
    """The alerts of all controllers, as ``owner`` knows them."""

    def __init__(self, owner: str, settings: AlertSettings) -> None:
        self.alerts: dict[str, Alert] = {}
        self.acknowledgements: dict[str, Acknowledgement] = {}
        self.urgent: dict[str, None] = {}
        """Alerts that opened, got worse or ended, in that order."""
        self.recount: dict[str, None] = {}
        """Alerts that were seen again."""
        self.settling: dict[str, float] = {}
        """Alerts that came and went too often, and when they will have been quiet for long enough."""
        self.refused = 0
        """Events that found no room."""
        self.crowded = False
        self._owner = owner
        self._settings = settings
        self._flaps: dict[str, int] = {}
        self._by_subject: dict[str, set[str]] = {}
        self._by_key: dict[str, set[str]] = {}

    def apply(self, event: HardwareEvent, now: float) -> Alert | None:
        """The alert, if somebody should hear of its change."""
        ident = rec.identity(event)
        alert = self.alerts.get(ident)
        if alert is None or alert.over:
            return None if event.severity == "ok" else self._open(ident, alert, event, now)
        if event.severity == "ok":
            if self._flaps.get(ident, 0) >= self._settings.flaps:
                self.settling[ident] = now + self._settings.quiet
                return None
            return self._keep(rec.ended(alert, now, self._owner))
        self.settling.pop(ident, None)
        changed = rec.again(alert, event, now, self._owner)
        if changed.worst != alert.worst:
            return self._keep(changed)
        self.alerts[ident] = changed
        self.recount[ident] = None
        return None

    def settle(self, now: float) -> list[Alert]:
        """End the alerts that came and went, and have been quiet since."""
        news = []
        for ident in [ident for ident, due in self.settling.items() if due <= now]:
            del self.settling[ident]
            self._flaps.pop(ident, None)
            alert = self.alerts.get(ident)
            if alert is not None and not alert.over:
                news.append(self._keep(rec.ended(alert, now, self._owner)))
        return news

    def lapse(self, now: float) -> list[Alert]:
        """End what happened long ago, and not since."""
        old = [
            alert
            for alert in self.alerts.values()
            if alert.once and not alert.over and now - alert.last >= self._settings.once
        ]
        return [self._keep(rec.lapsed(alert, now, self._owner)) for alert in old]

    def troubles(self, subject: str) -> dict[str, Severity]:
        """What is the matter with a node (or a BMC without one), and how bad it is: by key."""
        return {alert.key: alert.severity for alert in self.open_on(subject)}

    def open_on(self, subject: str) -> list[Alert]:
        """The alerts of a node (or a BMC without one) that are not over."""
        return [self.alerts[ident] for ident in self._by_subject.get(subject, ())]

    def open_of(self, key: str, begin: int = 0, most: int | None = None) -> list[Alert]:
        """The alerts with this key that are not over; of very many, ``most`` of them from the number ``begin`` on."""
        members = self._by_key.get(key, ())
        return [self.alerts[ident] for ident in islice(members, begin, None if most is None else begin + most)]

    def subject_gone(self, subject: str, now: float) -> list[Alert]:
        """End all alerts of a node (or a BMC) that is not there any more."""
        gone = self.open_on(subject)
        for alert in gone:
            self.settling.pop(alert.id, None)
            self._flaps.pop(alert.id, None)
        return [self._keep(rec.ended(alert, now, self._owner)) for alert in gone]

    # what the store has

    def pending(self, ident: str) -> bool:
        """Whether the alert was changed here and is not written yet."""
        return ident in self.urgent or ident in self.recount

    def put(self, alert: Alert) -> None:
        """It is like this."""
        self.alerts[alert.id] = alert
        if alert.over:
            self._drop_member(alert)
        else:
            self._by_subject.setdefault(alert.node or alert.bmc, set()).add(alert.id)
            self._by_key.setdefault(alert.key, set()).add(alert.id)

    def remove(self, ident: str) -> None:
        """It is no more."""
        gone = self.alerts.pop(ident, None)
        if gone is not None:
            self._drop_member(gone)

    def clear(self) -> None:
        """Forget everything but what is not written yet."""
        kept: Iterable[str] = (*self.urgent, *self.recount)
        left = [self.alerts[ident] for ident in kept if ident in self.alerts]
        self.alerts.clear()
        self.acknowledgements.clear()
        self._by_subject.clear()
        self._by_key.clear()
        for alert in left:
            self.put(alert)

    def _open(self, ident: str, before: Alert | None, event: HardwareEvent, now: float) -> Alert | None:
        if before is None and len(self.alerts) >= self._settings.most:
            self.crowded = True
            self.refused += 1
            return None
        if before is not None and now - before.changed < self._settings.quiet:
            self._flaps[ident] = self._flaps.get(ident, 0) + 1
        else:
            self._flaps.pop(ident, None)
        return self._keep(rec.opened(event, ident, now, self._owner))

    def _keep(self, alert: Alert) -> Alert:
        self.put(alert)
        self.urgent[alert.id] = None
        return alert

    def _drop_member(self, alert: Alert) -> None:
        for index, value in ((self._by_subject, alert.node or alert.bmc), (self._by_key, alert.key)):
            members = index.get(value, set())
            members.discard(alert.id)
            if not members:
                index.pop(value, None)


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
        self._book = AlertBook(owner, self.settings)
        self.alerts: Mapping[str, Alert] = self._book.alerts
        self.acknowledgements: Mapping[str, Acknowledgement] = self._book.acknowledgements
        self.troubles, self.open_on, self.open_of = self._book.troubles, self._book.open_on, self._book.open_of
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
            await cancelled(self._task)
            self._task = None
            while self._inbox:
                self._apply_some()
            self._book.urgent |= self._book.recount
            with suppress(StrataError):
                await self._write_all()
        await self._followed.stop()

    @property
    def refused(self) -> int:
        """Events that found no room."""
        return self._book.refused

    def take(self, events: Sequence[HardwareEvent]) -> None:
        """Open, update or end the alerts that these events are about."""
        room = max(0, self.settings.waiting - len(self._inbox))
        self._inbox.extend(events if len(events) <= room else events[:room])
        self._book.refused += max(0, len(events) - room)
        self._idle.clear()
        self._wake.set()

    def subject_gone(self, subject: str) -> None:
        """A node (or a BMC) is not there any more: whatever was wrong with it is over."""
        self._hear(self._book.subject_gone(subject, self._clock()))
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
        revision = await self._ledger.commit_many(author, "alert.acknowledge", "alert", ops, detail=detail)
        for op in ops:
            assert isinstance(op, Put)
            self._followed.wrote(op.key, op.value, revision)

    async def upkeep(self) -> None:
        """End what happened long ago and not since, and remove what has been over for long enough. Any controller may:
        it is the same for all."""
        if news := self._book.lapse(self._clock()):
            self._hear(news)
            self._idle.clear()
            self._wake.set()
        await self.prune()

    async def prune(self, keep: float | None = None) -> int:
        """Remove what has been over for long enough; how many."""
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
            log.error("more alerts than are kept", extra={"refused": book.refused, "over_and_removed": gone})

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
