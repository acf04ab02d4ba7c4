"""Where alerts are sent: records in the store (``webhook/NAME``), their secrets sealed; one ``Post`` for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from strata.core.errors import BadRequest, NotFound
from strata.hardware.access.sealing import Seal
from strata.hardware.bmc import Severity
from strata.hardware.events.alerts_record import Alert
from strata.hardware.events.marks import Marks
from strata.hardware.events.webhooks_post import Post, PostSettings
from strata.hardware.events.words import RANK
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

PREFIX = "webhook/"
_encode = msgspec.msgpack.Encoder().encode


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver as it is stored."""

    name: str
    url: str
    least: Severity
    secret: bytes | None
    """Sealed."""
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
        marks: Marks,
        *,
        owner: str,
        settings: PostSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.records: dict[str, Webhook] = {}
        self.posts: dict[str, Post] = {}
        self._ledger = ledger
        self._seal = seal
        self._marks = marks
        self._owner = owner
        self._settings = settings or PostSettings()
        self._clock = clock
        self._followed = Followed(store, PREFIX, self._take, self._clear)
        self._http: aiohttp.ClientSession | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self, alerts: Iterable[Alert]) -> None:
        """Begin; each receiver is first told of those ``alerts`` of ours that it has not heard of."""
        self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        await self._followed.start()
        own = sorted((a for a in alerts if a.owner == self._owner), key=lambda alert: alert.changed)
        for name, record in self.records.items():
            mark = self._marks.mark(PREFIX + name)
            since = float(mark) if mark else record.changed
            self._hand(name, [alert for alert in own if alert.changed > since])

    async def stop(self) -> None:
        """Deliver nothing more; what waits is delivered after the next start."""
        await self._followed.stop()
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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequest("not an http or https address", where="url", hint="such as https://alerts.example/strata")
        if parts.username is not None or parts.password is not None:
            raise BadRequest("a name or password in the address would be shown", where="url", hint="use the secret")
        key = PREFIX + name
        before = self.records.get(name)
        sealed = self._seal.seal(secret, key) if secret is not None else before.secret if before else None
        record = Webhook(name=name, url=url, least=least, secret=sealed, author=author, changed=self._clock())
        value = _encode(record)
        detail = {"host": parts.hostname, "least": least, "signed": sealed is not None}
        revision = await self._ledger.commit(author, "put-webhook", key, [Put(key, value)], detail=detail)
        self._followed.wrote(key, value, revision)

    async def delete(self, author: str, name: str) -> None:
        """Remove one; what waits for it is dropped."""
        self.find(name)
        key = PREFIX + name
        revision = await self._ledger.commit(author, "delete-webhook", key, [Delete(key)])
        self._followed.wrote(key, None, revision)

    def find(self, name: str) -> Webhook:
        """One of them."""
        if name not in self.records:
            raise NotFound("no such webhook", where=repr(name)[:80], hint="list them with: strata webhook list")
        return self.records[name]

    def _hand(self, name: str, alerts: Sequence[Alert]) -> None:
        least = RANK[self.records[name].least]
        wanted = [alert for alert in alerts if RANK[alert.worst] >= least]
        if wanted:
            self.posts[name].tell(wanted)

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(PREFIX)
        left = self.posts[name].waiting if name in self.posts else ()
        self._end(name)
        if value is None:
            return
        try:
            record = msgspec.msgpack.decode(value, type=Webhook)
        except msgspec.MsgspecError:
            log.error("unreadable webhook record", extra={"key": key})
            return
        self.records[name] = record
        assert self._http is not None
        self.posts[name] = Post(
            name,
            record.url,
            self._http,
            controller=self._owner,
            secret=None if record.secret is None else lambda: self._seal.open(record.secret or b"", key),
            delivered=lambda changed: self._marks.set_mark(key, repr(changed)),
            settings=self._settings,
            clock=self._clock,
        )
        self._hand(name, left)

    def _clear(self) -> None:
        for name in list(self.records):
            self._end(name)

    def _end(self, name: str) -> None:
        self.records.pop(name, None)
        post = self.posts.pop(name, None)
        if post is not None:
            task = asyncio.create_task(post.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
