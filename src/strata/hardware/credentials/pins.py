"""Certificates of BMCs that were seen first, and are the only ones accepted since: trust on first use.

Kept in the store by ``host:port``. A first sight is remembered at once and written soon after, many in one; a changed
certificate is accepted when a person says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import BadRequest, NotFound, StrataError
from strata.fleet.recurring import Recurring
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

PREFIX = "bmc-pin/"

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_GATHER = 0.5  # seconds in which first sights are gathered into one write
_RETRY_AFTER = 5.0


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate, by its SHA-256 fingerprint (hexadecimal)."""

    sha256: str
    since: float
    author: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Pin).decode


class Pins:
    """Which certificate each BMC has. ``get`` and ``put`` never wait."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pins: dict[str, Pin] = {}
        self._fresh: dict[str, Pin] = {}
        self._writes = Recurring(
            "certificate pins",
            self._write_fresh,
            lambda: _RETRY_AFTER if self._writes.error else None,
            trouble="certificate pins not written yet",
        )
        self._followed = Followed(store, PREFIX, self._take, self._pins.clear)

    async def start(self) -> None:
        """Load what is known and follow it until ``stop``."""
        await self._followed.start()
        await self._writes.start()

    async def stop(self) -> None:
        """Write what is new and end the watch."""
        await self._writes.stop()
        with contextlib.suppress(StrataError):
            await self._flush()
        await self._followed.stop()

    def get(self, host: str) -> str | None:
        """The fingerprint that the BMC at ``host:port`` must have; None: it was never seen."""
        pin = self._pins.get(host) or self._fresh.get(host)
        return pin.sha256 if pin else None

    def put(self, host: str, sha256: str) -> None:
        """Remember the first certificate of a BMC. One that is known stays as it is."""
        if self.get(host) is None:
            self._fresh[host] = Pin(sha256=_checked(sha256), since=time.time(), author="strata")
            self._writes.soon()

    async def accept(self, address: str, author: str, sha256: str = "") -> str:
        """Accept the certificate with this fingerprint from now on, or (empty) the next one that is seen. The
        ``host:port`` that it is about; ``NotFound`` if there is nothing to forget."""
        host = host_of(address)
        key = PREFIX + host
        if sha256:
            pin = Pin(sha256=_checked(sha256), since=time.time(), author=author)
            value = _encode(pin)
            revision = await self._ledger.commit(author, "bmc.pin", host, [Put(key, value)], None, {"sha256": sha256})
            self._followed.wrote(key, value, revision)
            return host
        if self.get(host) is None:
            raise NotFound("no certificate is remembered for it", where=host, hint="the next one will be")
        self._fresh.pop(host, None)
        revision = await self._ledger.commit(author, "bmc.unpin", host, [Delete(key)])
        self._followed.wrote(key, None, revision)
        return host

    def _take(self, key: str, value: bytes | None) -> None:
        host = key.removeprefix(PREFIX)
        self._pins.pop(host, None)
        if value is None:
            return
        try:
            self._pins[host] = _decode(value)
        except msgspec.MsgspecError:
            # Whatever it was, it is not the certificate that the BMC shows: a person decides.
            self._pins[host] = Pin(sha256="0" * 64, since=0.0, author="")
            log.error("unreadable certificate pin", extra={"key": key})

    async def _write_fresh(self) -> None:
        await asyncio.sleep(_GATHER)
        await self._flush()

    async def _flush(self) -> None:
        fresh = {host: pin for host, pin in self._fresh.items() if host not in self._pins}
        ops: list[Op] = [Put(PREFIX + host, _encode(pin)) for host, pin in fresh.items()]
        if ops:
            # Where another controller was first, its certificate counts: the watch brings it, and ours is dropped.
            expect = dict.fromkeys((op.key for op in ops), 0)
            await self._ledger.commit_many("strata", "bmc.pin", f"{len(ops)} BMCs seen first", ops, expect)
            self._pins.update(fresh)
        self._fresh = {host: pin for host, pin in self._fresh.items() if host not in self._pins}


def host_of(address: str) -> str:
    """``host:port`` of an address, as pins are kept by."""
    parts = urlsplit(address if "://" in address else f"https://{address}")
    try:
        port = parts.port or {"http": 80, "ipmi": 623}.get(parts.scheme, 443)
    except ValueError:
        port = 0
    if not parts.hostname or not port:
        raise BadRequest("not the address of a BMC", where=repr(address)[:80], hint="https://10.1.0.7")
    return f"{parts.hostname}:{port}"


def _checked(sha256: str) -> str:
    text = sha256.replace(":", "").lower()
    if not _SHA256.match(text):
        raise BadRequest("a fingerprint is 64 hexadecimal digits (SHA-256)", where=repr(sha256)[:80])
    return text
