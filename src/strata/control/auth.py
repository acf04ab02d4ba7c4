"""Credentials: who is behind a bearer token or a client certificate. Knows the store, not HTTP.

A token is ``strata_<id>_<secret>``; the store holds only a hash of the secret, under ``auth/token/<id>``. A client
certificate is known by the subject that our CA gave it, until it is listed under ``auth/revoked/<serial>``. All records
are held in memory and kept fresh by a watch, so that checking a request touches no disk; a revocation takes
effect at once here and within a watch's delay on other controllers. While the store is away, what was last seen stands.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from strata.control.ca import CONTROLLER_UNIT
from strata.control.principal import ROLES, Principal, Role
from strata.control.service_views import CertificateView, NewToken, TokenRequest, TokenView
from strata.core.errors import BadRequest, NotFound, Unauthenticated
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"strata_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_SERIAL = re.compile(r"[0-9A-F]{1,40}\Z")
_PREFIX = "auth/"

# As nginx prints it (RFC 2253, last first). Our CA writes exactly this shape, in characters that need no escape.
_SUBJECT = re.compile(
    r"(?P<scope>(?:OU=scope:[A-Za-z0-9_.-]+,)*)OU=role:(?P<role>[a-z-]+),CN=(?P<name>[A-Za-z0-9_.@-]+),O=Strata\Z"
)
_CONTROLLER = re.compile(rf"OU={CONTROLLER_UNIT},CN=(?P<name>[A-Za-z0-9_.-]+),O=Strata\Z")
_GROUP = re.compile(r"OU=scope:([A-Za-z0-9_.-]+),")


class Commits(Protocol):
    """The part of the ledger (``strata.store.audit``) that is used here: a change and its audit record in one."""

    async def commit(
        self,
        author: str,
        action: str,
        target: str,
        ops: Sequence[Op],
        expect: Mapping[str, int] | None = None,
        detail: Mapping[str, Any] = ...,
    ) -> int:
        """Do ``ops`` and record who did what; return the revision."""
        ...


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored: everything but the secret."""

    id: str
    hash: bytes
    role: Role
    scope: tuple[str, ...]
    created: float
    expires: float
    author: str
    note: str = ""

    def __repr__(self) -> str:
        return f"TokenRecord({self.id}, {self.role})"

    @property
    def view(self) -> TokenView:
        """What may be shown."""
        return TokenView(
            id=self.id,
            role=self.role,
            scope=self.scope,
            created=self.created,
            expires=self.expires,
            author=self.author,
            note=self.note,
        )


class CertificateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A client certificate that was issued, so that it can be listed and revoked."""

    serial: str
    name: str
    role: Role
    scope: tuple[str, ...]
    expires: float
    author: str


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that is not good any more."""

    serial: str
    author: str
    since: float


class Authenticator:
    """Checks credentials against the records in the store, and changes those."""

    def __init__(self, store: Store, ledger: Commits, *, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._tokens: dict[str, TokenRecord] = {}
        self._certificates: dict[str, CertificateRecord] = {}
        self._revoked: dict[str, Revocation] = {}
        self._followed = Followed(store, _PREFIX, self._apply, self._forget_all)

    async def start(self) -> None:
        """Load all records, then follow their changes until ``stop``."""
        await self._followed.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._followed.stop()

    # checking

    def token(self, text: str) -> Principal:
        """Who holds this token; ``Unauthenticated`` if it is malformed, unknown, revoked or expired."""
        match = _TOKEN.match(text)
        if match is None:
            raise Unauthenticated("the bearer token is malformed", hint="a token looks like strata_<id>_<secret>")
        record = self._tokens.get(match[1])
        # An unknown id costs the same hash and comparison as a wrong secret.
        if not hmac.compare_digest(_hash(match[2]), record.hash if record else b"") or record is None:
            raise Unauthenticated("the bearer token is unknown or revoked", hint="ask an administrator for a new one")
        return self._holder(record)

    def token_holder(self, ident: str) -> Principal:
        """Who holds the token with this id, for somebody who has shown it before; ``Unauthenticated`` if it is not
        good any more."""
        record = self._tokens.get(ident)
        if record is None:
            raise Unauthenticated("the token was revoked", hint="ask an administrator for a new one")
        return self._holder(record)

    def _holder(self, record: TokenRecord) -> Principal:
        if record.expires <= self._clock():
            raise Unauthenticated("the bearer token has expired", hint="ask an administrator for a new one")
        return Principal(
            name=f"token:{record.id}", role=record.role, scope=record.scope, via="token", credential=record.id
        )

    def certificate(self, verify: str, serial: str, subject: str) -> Principal:
        """Who holds this certificate, from what the front door verified; ``Unauthenticated`` unless all is right."""
        match, serial = self._shown(_SUBJECT, verify, serial, subject)
        role = next((role for role in ROLES if role == match["role"]), None)
        if role is None:
            raise Unauthenticated("the client certificate names a role that does not exist")
        scope = tuple(reversed(_GROUP.findall(match["scope"])))
        return Principal(name=match["name"], role=role, scope=scope, via="certificate", credential=serial)

    def controller(self, verify: str, serial: str, subject: str) -> str:
        """Which controller shows this certificate; ``Unauthenticated`` unless it is one of a controller. Such a
        certificate has no role: it is good for nothing else."""
        match, _ = self._shown(_CONTROLLER, verify, serial, subject)
        return match["name"]

    def _shown(self, shape: re.Pattern[str], verify: str, serial: str, subject: str) -> tuple[re.Match[str], str]:
        """The parts of a subject of that shape, and the serial, of a certificate that is good."""
        if verify != "SUCCESS":
            raise Unauthenticated(
                "no token, and no client certificate from Strata's own authority",
                hint="ask an administrator for one of these",
            )
        serial = serial.upper().lstrip("0")
        match = shape.match(subject)
        if match is None or not _SERIAL.match(serial):
            raise Unauthenticated("the client certificate is not one for clients of Strata")
        if serial in self._revoked:
            raise Unauthenticated("the client certificate was revoked", hint="ask an administrator for a new one")
        return match, serial

    # tokens

    async def mint(self, who: Principal, request: TokenRequest) -> NewToken:
        """A new token. The secret is in the answer and nowhere else."""
        if not request.note.isprintable():
            raise BadRequest("a note is of printable characters", where="note")
        ident, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._clock()
        record = TokenRecord(
            id=ident,
            hash=_hash(secret),
            role=request.role,
            scope=tuple(request.scope),
            created=now,
            expires=now + request.ttl,
            author=who.name,
            note=request.note,
        )
        await self._write(
            who,
            "mint-token",
            f"auth/token/{ident}",
            record,
            detail={"role": record.role, "scope": list(record.scope), "expires": record.expires},
        )
        return NewToken(token=f"strata_{ident}_{secret}", view=record.view)

    def tokens(self) -> list[TokenView]:
        """All tokens that have not been revoked, oldest first, without secrets."""
        return [r.view for r in sorted(self._tokens.values(), key=lambda r: (r.created, r.id))]

    async def revoke(self, who: Principal, ident: str) -> None:
        """From now on the token is worth nothing."""
        if ident not in self._tokens:
            raise NotFound("no such token", where=repr(ident)[:80], hint="list tokens to see their ids")
        key = f"auth/token/{ident}"
        revision = await self._ledger.commit(who.name, "revoke-token", key, [Delete(key)])
        self._followed.wrote(key, None, revision)

    # certificates

    async def record_certificate(self, who: Principal, record: CertificateRecord) -> None:
        """Remember a certificate before it is handed out."""
        detail = {"name": record.name, "role": record.role, "scope": list(record.scope), "expires": record.expires}
        await self._write(who, "issue-certificate", f"auth/certificate/{record.serial}", record, detail=detail)

    def certificates(self) -> list[CertificateView]:
        """All recorded certificates that have not expired, by name."""
        now = self._clock()
        return [
            CertificateView(
                serial=r.serial,
                name=r.name,
                role=r.role,
                scope=r.scope,
                expires=r.expires,
                author=r.author,
                revoked=r.serial in self._revoked,
            )
            for r in sorted(self._certificates.values(), key=lambda r: (r.name, r.serial))
            if r.expires > now
        ]

    async def revoke_certificate(self, who: Principal, serial: str) -> None:
        """From now on the certificate is worth nothing. Works for any serial, recorded here or not."""
        serial = serial.upper().lstrip("0")
        if not _SERIAL.match(serial):
            raise BadRequest("a serial is 1 to 40 hexadecimal digits", where=repr(serial)[:80])
        key = f"auth/revoked/{serial}"
        record = Revocation(serial=serial, author=who.name, since=self._clock())
        value = msgspec.msgpack.encode(record)
        revision = await self._ledger.commit(who.name, "revoke-certificate", key, [Put(key, value)])
        self._followed.wrote(key, value, revision)

    # following the store

    async def _write(self, who: Principal, action: str, key: str, record: object, *, detail: dict[str, object]) -> None:
        """A new record, in the audit log and at hand."""
        value = msgspec.msgpack.encode(record)
        revision = await self._ledger.commit(who.name, action, key, [Put(key, value)], {key: 0}, detail)
        self._followed.wrote(key, value, revision)

    def _forget_all(self) -> None:
        self._tokens, self._certificates, self._revoked = {}, {}, {}

    def _apply(self, key: str, value: bytes | None) -> None:
        _, kind, ident = key.split("/", 2)
        try:
            if kind == "token":
                _change(self._tokens, ident, value, TokenRecord)
            elif kind == "certificate":
                _change(self._certificates, ident, value, CertificateRecord)
            elif kind == "revoked":
                _change(self._revoked, ident, value, Revocation)
        except msgspec.MsgspecError:
            # A record that we cannot read grants nothing; a revocation that we cannot read still revokes.
            log.error("unreadable credential record", extra={"key": key})
            self._tokens.pop(ident, None)
            if kind == "revoked":
                self._revoked[ident] = Revocation(serial=ident, author="", since=0.0)


_R = TypeVar("_R")


def _change(table: dict[str, _R], ident: str, value: bytes | None, kind: type[_R]) -> None:
    if value is None:
        table.pop(ident, None)
    else:
        table[ident] = msgspec.msgpack.decode(value, type=kind)


def _hash(secret: str) -> bytes:
    # The secret is 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(secret.encode()).digest()
