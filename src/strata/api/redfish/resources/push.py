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

from strata.api.redfish.protocol.messages import STRATA, clean
from strata.api.redfish.protocol.route import Json
from strata.api.redfish.protocol.schemas import type_of
from strata.api.redfish.resources.forms import HEALTH, when
from strata.core.errors import BadRequest, Corrupt, StrataError
from strata.core.urls import shown
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.access.sealing import Seal
from strata.fleet.tasks import beside, cancelled
from strata.hardware.alerts.service import AlertService
from strata.hardware.events.records import EventView
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

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


def event_body(events: Sequence[EventView], context: str) -> Json:
    """Several events in one message; ``context`` is what the subscriber wants to see in it."""
    return message_of([_record(number, event) for number, event in enumerate(events)], str(events[-1].id), context)


def message_of(records: Sequence[Json], ident: str, context: str) -> Json:
    """The message around some records."""
    body: Json = {
        "@odata.type": type_of("Event"),
        "Id": ident,
        "Name": "Events of the machine",
        "Events": list(records),
    }
    if context:
        body["Context"] = context
    return body


def _record(number: int, event: EventView) -> Json:
    text = clean(f"{event.node or event.bmc}: {event.message}" if event.node or event.bmc else event.message)
    grade = HEALTH.get(event.severity, "Warning")
    record: Json = {
        "MemberId": str(number),
        "EventId": str(event.id),
        "EventType": "Alert",
        "EventTimestamp": when(event.time),
        "Severity": grade,
        "MessageSeverity": grade,
        "Message": text,
        "MessageId": f"{STRATA}.Event",
        "MessageArgs": [text],
    }
    if event.node:
        record["OriginOfCondition"] = {"@odata.id": f"/redfish/v1/Systems/{event.node}"}
    return record


def _is_sealed(stored: Subscription) -> bool:
    return stored.destination.startswith(_SEALED)


def _sealed(stored: Subscription) -> bytes:
    return base64.b64decode(stored.destination.removeprefix(_SEALED))


class _Line:
    """What waits for one receiver, and the task that sends it."""

    def __init__(self, subscription: Subscription, client: Callable[[], aiohttp.ClientSession]) -> None:
        self.subscription = subscription
        self.failing = ""
        self.dropped = 0
        self._client = client
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
        await cancelled(self._task)

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
                await asyncio.sleep(RETRY_AFTER)
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

    def __init__(self, store: Store, ledger: Ledger, seal: Seal) -> None:
        self._seal = seal
        self._lines: dict[str, _Line] = {}
        self._streams: dict[str, tuple[Subscription, asyncio.Event]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._records = Records(
            store, ledger, Subscription, kind="subscription", prefix=_PREFIX, changed=self._changed, cleared=self._clear
        )
        self._feed: asyncio.Task[None] | None = None

    async def start(self, alerts: AlertService | None = None) -> None:
        """Load the subscriptions and follow them, and send the events of ``alerts``, until ``stop``."""
        await self._records.start()
        await self._seal_old()
        if alerts is not None:
            self._feed = asyncio.create_task(self._follow(alerts), name="events for Redfish")

    async def stop(self) -> None:
        """End all of that; what waits is not sent."""
        await self._records.stop()
        await cancelled(self._feed)
        self._clear()
        await asyncio.gather(*self._leaving)
        if self._session is not None:
            await self._session.close()

    def all(self) -> list[Subscription]:
        """All of them, oldest first."""
        streams = [subscription for subscription, _ in self._streams.values()]
        return sorted(
            [*streams, *(line.subscription for line in self._lines.values())], key=lambda s: (s.created, s.id)
        )

    def get(self, ident: str) -> Subscription:
        """One of them, or ``NotFound``."""
        return self._streams[ident][0] if ident in self._streams else self._opened(self._records.get(ident))

    def trouble(self, ident: str) -> str:
        """Why the last delivery failed; empty: it did not."""
        line = self._lines.get(ident)
        return "" if line is None else line.failing

    def open_stream(self, who: Principal) -> tuple[Subscription, asyncio.Event]:
        """A client begins to listen, and is listed until ``close_stream``. The event tells when it was sent away."""
        ident = secrets.token_hex(8)
        subscription = Subscription(
            id=ident, destination="", context=ident, created=time.time(), author=who.name, stream=True
        )
        self._streams[ident] = (subscription, asyncio.Event())
        return self._streams[ident]

    def close_stream(self, ident: str) -> None:
        self._streams.pop(ident, None)

    async def create(self, who: Principal, subscription: Subscription) -> Subscription:
        """Add one; it gets its id here."""
        if len(self._records.all) >= MOST:
            raise BadRequest(f"there are at most {MOST} subscriptions", hint="delete one first")
        fresh = msgspec.structs.replace(subscription, id=secrets.token_hex(8), created=time.time(), author=who.name)
        return await self._put(who.name, fresh, "create")

    async def replace(self, who: Principal, subscription: Subscription) -> None:
        """Change one."""
        if self.get(subscription.id).stream:
            raise BadRequest("a stream cannot be changed, only closed", where=subscription.id)
        await self._put(who.name, subscription, "change")

    async def delete(self, who: Principal, ident: str) -> None:
        if ident in self._streams:
            self._streams[ident][1].set()
            return
        await self._records.delete(who.name, ident)

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

    async def _put(self, author: str, subscription: Subscription, action: str) -> Subscription:
        plain = subscription.destination
        sealed = base64.b64encode(self._seal.seal(plain.encode(), _PREFIX + subscription.id)).decode()
        stored = msgspec.structs.replace(subscription, destination=_SEALED + sealed)
        await self._records.put(author, stored.id, stored, action=action, detail={"destination": shown(plain)})
        return subscription

    def _changed(self, ident: str, subscription: Subscription | None) -> None:
        self._end(ident)
        if subscription is None:
            return
        try:
            opened = self._opened(subscription)
        except Corrupt as error:
            log.error("a subscription's destination cannot be opened", extra={"key": ident, "reason": str(error)})
            return
        self._lines[ident] = _Line(opened, self._client)

    def _opened(self, stored: Subscription) -> Subscription:
        """As it was given. One from before destinations were sealed has it in the open."""
        if not _is_sealed(stored):
            return stored
        key = _PREFIX + stored.id
        try:
            plain = self._seal.open(_sealed(stored), key).decode()
        except ValueError:
            raise Corrupt("its destination was changed", where=key, hint="delete it, and subscribe again") from None
        return msgspec.structs.replace(stored, destination=plain)

    async def _seal_old(self) -> None:
        """Seal the destinations that were stored before they were, and bring all under the key that seals now."""
        for ident, line in list(self._lines.items()):
            stored = self._records.get(ident)
            if not _is_sealed(stored) or self._seal.reseal(_sealed(stored), _PREFIX + ident) is not None:
                await self._put("strata", line.subscription, "seal")

    def _clear(self) -> None:
        for ident in list(self._lines):
            self._end(ident)

    def _end(self, ident: str) -> None:
        line = self._lines.pop(ident, None)
        if line is not None:
            beside(self._leaving, line.close())

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session
