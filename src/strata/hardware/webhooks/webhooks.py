"""Where alerts are sent: records in the store (``webhook/NAME``), their addresses and secrets sealed; one ``Post`` for
each. Many receivers know who may speak to them by their address alone, so it is a secret like any other."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
import msgspec

from strata.core.errors import BadRequest, Corrupt, StrataError
from strata.core.texts import Out
from strata.core.urls import refuse_login, shown
from strata.fleet.access.sealing import Seal
from strata.fleet.tasks import beside, cancelled
from strata.hardware.alerts.records import Alert
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.log import EventLog
from strata.hardware.events.words import RANK
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

log = logging.getLogger(__name__)

SIGNATURE = "X-Strata-Signature"
DELIVERY = "X-Strata-Delivery"


class PostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How hard is tried. Times in seconds."""

    timeout: float = 10.0
    """For one delivery, all in all."""
    again_after: float = 1.0
    """After a failure; doubles up to ``again_most``."""
    again_most: float = 300.0
    batch: int = 100
    """Alerts in one delivery."""
    waiting: int = 10_000
    """Alerts that wait for one receiver."""
    gather: float = 0.05
    """What happens within so long goes together."""


class Told(Out, frozen=True, kw_only=True):
    """An alert as a receiver gets it."""

    id: str
    node: str
    bmc: str
    key: str
    severity: str
    message: str
    message_id: str
    state: str
    """``open`` or ``over``."""
    first: float
    last: float
    count: int
    fields: Mapping[str, str]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one delivery. ``sent`` is signed with the rest: an old one that is sent again gives itself away."""

    id: str
    sent: float
    controller: str
    webhook: str
    alerts: tuple[Told, ...]
    dropped: int
    """Alerts that could not wait any longer since the last delivery that was taken."""


class Post:
    """One receiver. ``url`` and ``secret`` open what is sealed each time that it is needed: neither is kept open."""

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        http: aiohttp.ClientSession,
        *,
        controller: str,
        secret: Callable[[], bytes] | None,
        delivered: Callable[[float], None],
        settings: PostSettings,
        clock: Callable[[], float],
    ) -> None:
        self.delivered = 0
        self.dropped = 0
        self.failing = ""
        """Why the last delivery was not taken; empty: it was."""
        self._name = name
        self._url = url
        self._http = http
        self._controller = controller
        self._secret = secret
        self._mark = delivered
        self._settings = settings
        self._clock = clock
        self._waiting: OrderedDict[str, Alert] = OrderedDict()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._deliver(), name=f"webhook {name}")

    @property
    def waiting(self) -> Sequence[Alert]:
        """What was not delivered yet."""
        return list(self._waiting.values())

    async def stop(self) -> None:
        """Deliver nothing more."""
        await cancelled(self._task)

    def tell(self, alerts: Sequence[Alert]) -> None:
        """Have these delivered."""
        for alert in alerts:
            self._waiting.pop(alert.id, None)
            self._waiting[alert.id] = alert
        while len(self._waiting) > self._settings.waiting:
            self._waiting.popitem(last=False)
            self.dropped += 1
        self._wake.set()

    async def _deliver(self) -> None:
        failures = 0
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                await asyncio.sleep(self._settings.gather)
            batch = [alert for alert, _ in zip(self._waiting.values(), range(self._settings.batch), strict=False)]
            dropped = self.dropped
            self.failing = await self._post(batch, dropped)
            if self.failing:
                failures += 1
                log.warning("webhook not delivered", extra={"webhook": self._name, "reason": self.failing})
                pause = min(self._settings.again_after * 2 ** min(failures - 1, 16), self._settings.again_most)
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))
                continue
            failures = 0
            self.delivered += len(batch)
            self.dropped -= dropped
            for alert in batch:
                if self._waiting.get(alert.id) is alert:
                    del self._waiting[alert.id]
            # Everything older was delivered before, or dropped and counted.
            self._mark(max(alert.changed for alert in batch))

    async def _post(self, batch: Sequence[Alert], dropped: int) -> str:
        """Why it was not taken; empty: it was."""
        delivery = Delivery(
            id=secrets.token_hex(8),
            sent=self._clock(),
            controller=self._controller,
            webhook=self._name,
            alerts=tuple(Told.of(alert, state="over" if alert.over else "open") for alert in batch),
            dropped=dropped,
        )
        body = msgspec.json.encode(delivery)
        headers = {"Content-Type": "application/json", "User-Agent": "strata", DELIVERY: delivery.id}
        try:
            if self._secret is not None:
                headers[SIGNATURE] = "sha256=" + hmac.new(self._secret(), body, hashlib.sha256).hexdigest()
            limit = aiohttp.ClientTimeout(total=self._settings.timeout)
            async with self._http.post(
                self._url(), data=body, headers=headers, allow_redirects=False, timeout=limit
            ) as reply:
                status = reply.status
        except StrataError as error:
            return str(error)
        except TimeoutError:
            return f"no answer in {self._settings.timeout:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The text of these may hold the URL, and with it a secret.
            return f"cannot be reached ({type(error).__name__})"
        if 200 <= status < 300:
            return ""
        return "it redirects elsewhere, which is not followed" if 300 <= status < 400 else f"it answered {status}"


PREFIX = "webhook/"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver as it is stored."""

    name: str
    url: str
    """As it is shown; whole only in a record from before addresses were sealed."""
    least: Severity
    secret: bytes | None
    """Sealed."""
    address: bytes = b""
    """The URL, sealed; empty: ``url`` is it."""
    author: str
    changed: float

    def __repr__(self) -> str:
        return f"Webhook({self.name})"


class Webhooks:
    """All of them. ``tell`` takes alerts that somebody should hear of; it never blocks."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        seal: Seal,
        marks: EventLog,
        *,
        owner: str,
        settings: PostSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.posts: dict[str, Post] = {}
        self._seal = seal
        self._marks = marks
        self._owner = owner
        self._settings = settings or PostSettings()
        self._clock = clock
        self._records = Records(
            store,
            ledger,
            Webhook,
            kind="webhook",
            prefix=PREFIX,
            listed_by="strata webhook list",
            changed=self._changed,
            cleared=self._clear,
        )
        self.delete = self._records.delete
        """Remove one; what waits for it is dropped."""
        self.records, self.find = self._records.all, self._records.get
        self._http: aiohttp.ClientSession | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self, alerts: Iterable[Alert]) -> None:
        """Begin; each receiver is first told of those ``alerts`` of ours that it has not heard of."""
        self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        await self._records.start()
        await self._seal_old()
        own = sorted((a for a in alerts if a.owner == self._owner), key=lambda alert: alert.changed)
        for name, record in self.records.items():
            mark = self._marks.mark(PREFIX + name)
            since = float(mark) if mark else record.changed
            self._hand(name, [alert for alert in own if alert.changed > since])

    async def stop(self) -> None:
        """Deliver nothing more; what waits is delivered after the next start."""
        await self._records.stop()
        self._clear()
        await asyncio.gather(*self._ending)
        if self._http is not None:
            await self._http.close()
            self._http = None

    def tell(self, alerts: Sequence[Alert]) -> None:
        """Have these delivered to whoever wants to hear of them."""
        for name in self.posts:
            self._hand(name, alerts)

    async def put(self, author: str, name: str, url: str, least: Severity, secret: bytes | None) -> None:
        """Create or replace one. Without a ``secret`` the one that is there stays."""
        host = _host(url)
        refuse_login(url, "url", hint="sign deliveries with a secret, or have the receiver know them by their address")
        key = PREFIX + name
        before = self.records.get(name)
        sealed = self._seal.seal(secret, key) if secret is not None else before.secret if before else None
        record = Webhook(
            name=name,
            url=shown(url),
            least=least,
            secret=sealed,
            author=author,
            changed=self._clock(),
            address=self._seal.seal(url.encode(), _about(key)),
        )
        detail = {"host": host, "least": least, "signed": sealed is not None}
        await self._records.put(author, name, record, detail=detail)

    async def _seal_old(self) -> None:
        """Seal the addresses that were stored before they were, and bring all under the key that seals now."""
        for name, record in list(self.records.items()):
            key = PREFIX + name
            try:
                sealed = self._resealed(key, record)
            except Corrupt:
                continue  # its delivery says what is wrong
            if sealed != record:
                await self._records.put("strata", name, sealed, action="seal")

    def _resealed(self, key: str, record: Webhook) -> Webhook:
        secret = record.secret and self._seal.reseal(record.secret, key)
        if not record.address:
            address: bytes | None = self._seal.seal(record.url.encode(), _about(key))
        else:
            address = self._seal.reseal(record.address, _about(key))
        return msgspec.structs.replace(
            record, url=shown(record.url), secret=secret or record.secret, address=address or record.address
        )

    def _url(self, record: Webhook) -> str:
        return self._seal.open(record.address, _about(PREFIX + record.name)).decode() if record.address else record.url

    def _hand(self, name: str, alerts: Sequence[Alert]) -> None:
        least = RANK[self.records[name].least]
        wanted = [alert for alert in alerts if RANK[alert.worst] >= least]
        if wanted:
            self.posts[name].tell(wanted)

    def _changed(self, name: str, record: Webhook | None) -> None:
        key = PREFIX + name
        left = self.posts[name].waiting if name in self.posts else ()
        self._end(name)
        if record is None:
            return
        assert self._http is not None
        self.posts[name] = Post(
            name,
            lambda: self._url(record),
            self._http,
            controller=self._owner,
            secret=None if record.secret is None else lambda: self._seal.open(record.secret or b"", key),
            delivered=lambda changed: self._marks.set_mark(key, repr(changed)),
            settings=self._settings,
            clock=self._clock,
        )
        self._hand(name, left)

    def _clear(self) -> None:
        for name in list(self.posts):
            self._end(name)

    def _end(self, name: str) -> None:
        post = self.posts.pop(name, None)
        if post is not None:
            beside(self._ending, post.stop())


def _host(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.hostname
    raise BadRequest("not an http or https address", where="url", hint="such as https://alerts.example/strata")


def _about(key: str) -> str:
    """What an address is sealed for: not to be taken for the secret of the same webhook."""
    return f"{key} url"
