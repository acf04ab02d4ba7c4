"""Credentials: who is behind a bearer token or a client certificate. Knows the store, not HTTP.

A token is ``strata_<id>_<secret>``; the store holds only a hash of the secret, under ``auth/token/<id>``. A client
certificate is known by the subject that our CA gave it, until it is listed under ``auth/revoked/<serial>``. Checking a
request touches no disk; a revocation takes effect at once here and within a watch's delay on other controllers. While
the store is away, what was last seen stands.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable

import msgspec

from strata.core.errors import BadRequest, Unauthenticated
from strata.fleet.access.authority import CONTROLLER_UNIT
from strata.fleet.access.oidc.tokens import OidcTokens
from strata.fleet.access.principal import ROLES, Principal
from strata.fleet.access.records import Certificate, NewToken, Revocation, Token, TokenRequest, TokenRow
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

_TOKEN = re.compile(r"strata_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_DOTS = 2
"""In a token that a provider signed (a JWS). Ours have none."""
_SERIAL = re.compile(r"[0-9A-F]{1,40}\Z")

# As nginx prints it (RFC 2253, last first). Our CA writes exactly this shape, in characters that need no escape.
_SUBJECT = re.compile(
    r"(?P<scope>(?:OU=scope:[A-Za-z0-9_.-]+,)*)OU=role:(?P<role>[a-z-]+),CN=(?P<name>[A-Za-z0-9_.@-]+),O=Strata\Z"
)
_CONTROLLER = re.compile(rf"OU={CONTROLLER_UNIT},CN=(?P<name>[A-Za-z0-9_.-]+),O=Strata\Z")
_GROUP = re.compile(r"OU=scope:([A-Za-z0-9_.-]+),")


class Authenticator:
    """Checks credentials against the records in the store, and changes those."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        *,
        oidc: OidcTokens | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``oidc``: tokens of a provider that are good here too."""
        self._clock = clock
        self.oidc = oidc
        tokens = "strata auth token list"
        self._tokens = Records(store, ledger, TokenRow, kind="token", prefix="auth/token/", listed_by=tokens)
        self._certificates = Records(store, ledger, Certificate, kind="certificate", prefix="auth/certificate/")
        self._revoked = Records(store, ledger, Revocation, kind="certificate", prefix="auth/revoked/")

    async def start(self) -> None:
        """Load all records, then follow their changes until ``stop``."""
        for records in (self._tokens, self._certificates, self._revoked):
            await records.start()
        if self.oidc is not None:
            await self.oidc.start()

    async def stop(self) -> None:
        if self.oidc is not None:
            await self.oidc.stop()
        for records in (self._tokens, self._certificates, self._revoked):
            await records.stop()

    # checking

    def token(self, text: str) -> Principal:
        """Who holds this token; ``Unauthenticated`` if it is malformed, unknown, revoked or expired; ``UnknownKey`` if
        it may be good once the provider's keys have been fetched again."""
        if self.oidc is not None and text.count(".") == _DOTS:
            return self.oidc.principal(text)
        match = _TOKEN.match(text)
        if match is None:
            raise Unauthenticated("the bearer token is malformed", hint="a token looks like strata_<id>_<secret>")
        record = self._tokens.find(match[1])
        # An unknown id costs the same hash and comparison as a wrong secret.
        if not hmac.compare_digest(_hash(match[2]), record.hash if record else b"") or record is None:
            raise Unauthenticated("the bearer token is unknown or revoked", hint="ask an administrator for a new one")
        return self._holder(record)

    def token_holder(self, ident: str) -> Principal:
        """Who holds the token with this id, for somebody who has shown it before; ``Unauthenticated`` if it is not
        good any more."""
        record = self._tokens.find(ident)
        if record is None:
            raise Unauthenticated("the token was revoked", hint="ask an administrator for a new one")
        return self._holder(record)

    def _holder(self, record: TokenRow) -> Principal:
        if record.expires <= self._clock():
            raise Unauthenticated("the bearer token has expired", hint="ask an administrator for a new one")
        return Principal(
            name=record.name or f"token:{record.id}",
            role=record.role,
            scope=record.scope,
            via="token",
            credential=record.id,
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
        if self._is_revoked(serial):
            raise Unauthenticated("the client certificate was revoked", hint="ask an administrator for a new one")
        return match, serial

    def _is_revoked(self, serial: str) -> bool:
        return self._revoked.revision(serial) > 0  # a revocation that cannot be read still revokes

    # tokens

    async def mint(self, who: Principal, request: TokenRequest) -> NewToken:
        """A new bearer token. Its secret is shown here, once."""
        if not request.note.isprintable():
            raise BadRequest("a note is of printable characters", where="note")
        ident, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._clock()
        row = TokenRow.of(
            request,
            id=ident,
            hash=_hash(secret),
            created=now,
            expires=now + request.ttl,
            author=who.name,
            name=request.name or "",
        )
        detail = {"name": row.name, "role": row.role, "scope": list(row.scope), "expires": row.expires}
        await self._tokens.put(who.name, ident, row, expected=0, action="mint", detail=detail)
        return NewToken(token=f"strata_{ident}_{secret}", view=row.shown())

    def tokens(self) -> list[Token]:
        """All tokens that have not been revoked, oldest first, without secrets."""
        return [row.shown() for row in sorted(self._tokens.all.values(), key=lambda row: (row.created, row.id))]

    async def revoke(self, who: Principal, ident: str) -> None:
        """Revoke a token, at once."""
        self._tokens.get(ident)
        await self._tokens.delete(who.name, ident, action="revoke")

    # certificates

    async def record_certificate(self, who: Principal, issued: Certificate) -> None:
        """Remember a certificate before it is handed out."""
        detail = {"name": issued.name, "role": issued.role, "scope": list(issued.scope), "expires": issued.expires}
        await self._certificates.put(who.name, issued.serial, issued, expected=0, action="issue", detail=detail)

    def certificates(self) -> list[Certificate]:
        """All recorded certificates that have not expired, by name."""
        now = self._clock()
        return [
            msgspec.structs.replace(one, revoked=self._is_revoked(one.serial))
            for one in sorted(self._certificates.all.values(), key=lambda one: (one.name, one.serial))
            if one.expires > now
        ]

    async def revoke_certificate(self, who: Principal, serial: str) -> None:
        """Revoke a client certificate, at once. Any serial will do, recorded here or not."""
        serial = serial.upper().lstrip("0")
        if not _SERIAL.match(serial):
            raise BadRequest("a serial is 1 to 40 hexadecimal digits", where=repr(serial)[:80])
        revocation = Revocation(serial=serial, author=who.name, since=self._clock())
        await self._revoked.put(who.name, serial, revocation, action="revoke")


def _hash(secret: str) -> bytes:
    # The secret is 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(secret.encode()).digest()
