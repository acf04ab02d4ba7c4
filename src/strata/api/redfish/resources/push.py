"""Event subscriptions: where events are POSTed to, and the sending of them.

Subscriptions are records under ``redfish-subscription/<id>``, shared by all controllers; each controller sends the
events that it has seen itself. A receiver that is slow or away costs a bounded queue and nobody else's time: what does
not fit, or cannot be delivered after a few tries, is dropped and counted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence

import aiohttp
import msgspec

from strata.api.redfish.resources.event_body import Json, event_body
from strata.core.errors import BadRequest, Corrupt, NotFound, StrataError
from strata.core.urls import shown
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.access.sealing import Seal
from strata.hardware.alerts.service import AlertService
from strata.hardware.events.records import EventView
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

ATTEMPTS = 3
RETRY_AFTER = 5
"""Seconds between attempts."""
MOST = 100
"""Subscriptions."""

_PREFIX = "redfish-subscription/"
_SEALED = "sealed:"
"""How a destination begins that is sealed (base64)."""
_QUEUE = 1000
_BATCH = 50
_TIMEOUT = aiohttp.ClientTimeout(total=10)


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A place to send events to."""

    id: str
    destination: str
    """In the store it is sealed: receivers often know who may speak to them by it alone."""
    context: str = ""
    severities: tuple[str, ...] = ()
    """Only these; empty: all."""
    verify: bool = True
    """Whether the receiver's certificate must be good."""
    created: float
    author: str
    stream: bool = False
    """A client that listens on a connection of its own, to this controller; gone when it is."""


class _Line:
    """What waits for one receiver, and the task that sends it."""

    def __init__(self, subscription: Subscription, client: Callable[[], aiohttp.ClientSession], pause: float) -> None:
        self.subscription = subscription
        self.failing = ""
        self.dropped = 0
        self._client = client
        self._pause = pause
        self._waiting: deque[EventView | Json] = deque()
        self._some = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"events to subscription {subscription.id}")

    def put(self, item: EventView | Json) -> None:
        """Send this: an event, or a whole message."""
        if isinstance(item, EventView):
            wanted = self.subscription.severities
            if wanted and item.severity not in wanted:
                return
        if len(self._waiting) >= _QUEUE:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(item)
        self._some.set()

    async def close(self) -> None:
        """Send nothing more."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                await self._deliver(self._next())

    def _next(self) -> Json:
        first = self._waiting.popleft()
        if not isinstance(first, EventView):
            return {**first, "Context": self.subscription.context}
        batch = [first]
        while self._waiting and len(batch) < _BATCH and isinstance(self._waiting[0], EventView):
            batch.append(self._waiting.popleft())  # type: ignore[arg-type]
        return event_body(batch, self.subscription.context)

    async def _deliver(self, message: Json) -> None:
        body = msgspec.json.encode(message)
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._pause)
            self.failing = await self._post(body)
            if not self.failing:
                return
        self.dropped += len(message["Events"])
        log.warning("events not delivered", extra={"subscription": self.subscription.id, "reason": self.failing})

    async def _post(self, body: bytes) -> str:
        """Send it once; why that failed, or nothing."""
        try:
            async with self._client().post(
                self.subscription.destination,
                data=body,
                headers={"Content-Type": "application/json", "OData-Version": "4.0"},
                ssl=self.subscription.verify,
                allow_redirects=False,
                timeout=_TIMEOUT,
            ) as answer:
                return "" if answer.status < 300 else f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__


class EventPush:
    """All subscriptions, and the events that go to them."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        seal: Seal,
        *,
        clock: Callable[[], float] = time.time,
        retry_after: float = RETRY_AFTER,
    ) -> None:
        self._ledger = ledger
        self._seal = seal
        self._clock = clock
        self._retry_after = retry_after
        self._lines: dict[str, _Line] = {}
        self._streams: dict[str, tuple[Subscription, asyncio.Event]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._stale: set[str] = set()
        """Subscriptions whose destinations are not sealed, or by an older key."""
        self._followed = Followed(store, _PREFIX, self._take, self._clear)
        self._feed: asyncio.Task[None] | None = None

    async def start(self, alerts: AlertService | None = None) -> None:
        """Load the subscriptions and follow them, and send the events of ``alerts``, until ``stop``."""
        await self._followed.start()
        await self._seal_old()
        if alerts is not None:
            self._feed = asyncio.create_task(self._follow(alerts), name="events for Redfish")

    async def stop(self) -> None:
        """End all of that; what waits is not sent."""
        await self._followed.stop()
        if self._feed is not None:
            self._feed.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feed
        self._clear()
        await asyncio.gather(*self._leaving)
        if self._session is not None:
            await self._session.close()

    def all(self) -> list[Subscription]:
        """All of them, oldest first."""
        streams = [subscription for subscription, _ in self._streams.values()]
        found = [*streams, *(line.subscription for line in self._lines.values())]
        return sorted(found, key=lambda s: (s.created, s.id))

    def get(self, ident: str) -> Subscription:
        """One of them, or ``NotFound``."""
        return self._streams[ident][0] if ident in self._streams else self._line(ident).subscription

    def trouble(self, ident: str) -> str:
        """Why the last delivery failed; empty: it did not."""
        return "" if ident in self._streams else self._line(ident).failing

    def open_stream(self, who: Principal) -> tuple[Subscription, asyncio.Event]:
        """A client begins to listen, and is listed until ``close_stream``. The event tells when it was sent away."""
        ident = secrets.token_hex(8)
        subscription = Subscription(
            id=ident, destination="", context=ident, created=self._clock(), author=who.name, stream=True
        )
        self._streams[ident] = (subscription, asyncio.Event())
        return self._streams[ident]

    def close_stream(self, ident: str) -> None:
        """It listens no more."""
        self._streams.pop(ident, None)

    async def create(self, who: Principal, subscription: Subscription) -> Subscription:
        """Add one; it gets its id here."""
        if len(self._lines) >= MOST:
            raise BadRequest(f"there are at most {MOST} subscriptions", hint="delete one first")
        fresh = msgspec.structs.replace(subscription, id=secrets.token_hex(8), created=self._clock(), author=who.name)
        await self._write(who, "subscription.create", fresh)
        return fresh

    async def replace(self, who: Principal, subscription: Subscription) -> None:
        """Change one."""
        if self.get(subscription.id).stream:
            raise BadRequest("a stream cannot be changed, only closed", where=subscription.id)
        await self._write(who, "subscription.change", subscription)

    async def delete(self, who: Principal, ident: str) -> None:
        """Send nothing there any more."""
        if self.get(ident).stream:
            self._streams[ident][1].set()
            return
        key = _PREFIX + ident
        revision = await self._ledger.commit(who.name, "subscription.delete", key, [Delete(key)])
        self._followed.wrote(key, None, revision)

    def publish(self, events: Sequence[EventView]) -> None:
        """Send these to everybody who wants them."""
        for line in self._lines.values():
            for event in events:
                line.put(event)

    def publish_message(self, message: Json) -> None:
        """Send this whole message to everybody."""
        for line in self._lines.values():
            line.put(message)

    async def _follow(self, alerts: AlertService) -> None:
        while True:
            try:
                stream = await alerts.follow(LOCAL_ADMIN, "*", None)
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    async for events in stream:
                        self.publish(events)
            except StrataError as error:
                log.warning("cannot follow events", extra={"reason": str(error)})
            await asyncio.sleep(1.0)

    async def _write(self, who: Principal, action: str, subscription: Subscription) -> None:
        key, plain = _PREFIX + subscription.id, subscription.destination
        sealed = base64.b64encode(self._seal.seal(plain.encode(), key)).decode()
        value = msgspec.msgpack.encode(msgspec.structs.replace(subscription, destination=_SEALED + sealed))
        detail = {"destination": shown(plain)}
        revision = await self._ledger.commit(who.name, action, key, [Put(key, value)], None, detail)
        self._followed.wrote(key, value, revision)

    def _line(self, ident: str) -> _Line:
        line = self._lines.get(ident)
        if line is None:
            raise NotFound("no such subscription", where=repr(ident)[:80])
        return line

    def _take(self, key: str, value: bytes | None) -> None:
        ident = key.removeprefix(_PREFIX)
        self._end(ident)
        if value is None:
            return
        try:
            subscription = self._opened(key, msgspec.msgpack.decode(value, type=Subscription))
        except (msgspec.MsgspecError, ValueError, Corrupt) as error:
            log.error("unreadable subscription record", extra={"key": key, "reason": type(error).__name__})
            return
        self._lines[ident] = _Line(subscription, self._client, self._retry_after)

    def _opened(self, key: str, stored: Subscription) -> Subscription:
        """As it was given. One from before destinations were sealed has it in the open."""
        if not stored.destination.startswith(_SEALED):
            self._stale.add(stored.id)
            return stored
        sealed = base64.b64decode(stored.destination.removeprefix(_SEALED))
        plain = self._seal.open(sealed, key).decode()
        (self._stale.discard if self._seal.reseal(sealed, key) is None else self._stale.add)(stored.id)
        return msgspec.structs.replace(stored, destination=plain)

    async def _seal_old(self) -> None:
        """Seal the destinations that were stored before they were, and bring all under the key that seals now."""
        for ident in self._stale & self._lines.keys():
            await self._write(LOCAL_ADMIN, "seal-subscription", self._lines[ident].subscription)

    def _clear(self) -> None:
        for ident in list(self._lines):
            self._end(ident)

    def _end(self, ident: str) -> None:
        line = self._lines.pop(ident, None)
        if line is not None:
            task = asyncio.create_task(line.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session
