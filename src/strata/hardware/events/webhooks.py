"""Where alerts are sent: records in the store (``webhook/NAME``), their addresses and secrets sealed; one ``Post`` for
each. Many receivers know who may speak to them by their address alone, so it is a secret like any other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from strata.core.errors import BadRequest, Corrupt, NotFound
from strata.core.urls import refuse_login, shown
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
        await self._seal_old()
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
        value = _encode(record)
        detail = {"host": parts.hostname, "least": least, "signed": sealed is not None}
        revision = await self._ledger.commit(author, "put-webhook", key, [Put(key, value)], detail=detail)
        self._followed.wrote(key, value, revision)

    async def _seal_old(self) -> None:
        """Seal the addresses that were stored before they were, and bring all under the key that seals now."""
        for name, record in list(self.records.items()):
            key = PREFIX + name
            try:
                sealed = self._resealed(key, record)
            except Corrupt:
                continue  # its delivery says what is wrong
            if sealed == record:
                continue
            value = _encode(sealed)
            revision = await self._ledger.commit("strata", "seal-webhook", key, [Put(key, value)])
            self._followed.wrote(key, value, revision)

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
        for name in list(self.records):
            self._end(name)

    def _end(self, name: str) -> None:
        self.records.pop(name, None)
        post = self.posts.pop(name, None)
        if post is not None:
            task = asyncio.create_task(post.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _about(key: str) -> str:
    """What an address is sealed for: not to be taken for the secret of the same webhook."""
    return f"{key} url"
