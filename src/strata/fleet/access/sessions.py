"""Login sessions: a random token that stands for somebody until it is given back or lies idle for too long.

A session is a record under ``redfish-session/<id>`` with a lease, so it ends by itself and every controller sees the
same ones. The record holds only a hash of the token. Whom it stands for is looked up at each use: an account that is
disabled, or a token that is revoked, takes its sessions with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable

import msgspec

from strata.core.errors import StrataError, Unauthenticated, Unavailable
from strata.fleet.access.principal import Principal
from strata.fleet.tasks import all_cancelled, beside
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

log = logging.getLogger(__name__)

TIMEOUT = 1800
"""Seconds without a request after which a session ends."""
MOST = 10_000
MOST_EACH = 100
"""Sessions of one account or token."""

_RENEWALS = 6
"""A session in use is renewed so many times in its time-out, and not with every request."""


class TooManySessions(Unavailable):
    """No more sessions can be opened now."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored: everything but its token."""

    id: str
    hash: bytes
    subject: str
    """The name of the principal that opened it: ``account:ada``, ``token:0123...``."""
    user: str
    """What was given as the user name."""
    created: float
    lease: int

    def __repr__(self) -> str:
        return f"Session({self.id}, {self.subject})"


class Sessions:
    """The sessions of the store."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = time.time,
        timeout: float = TIMEOUT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout = timeout
        self._records = Records(
            store, ledger, Session, kind="session", prefix="redfish-session/", changed=self._changed
        )
        self.start = self._records.start
        self.get = self._records.get
        self._renewed: dict[str, float] = {}
        self._renewals: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        await self._records.stop()
        await all_cancelled(self._renewals)

    def all(self) -> list[Session]:
        """All of them, oldest first."""
        return sorted(self._records.all.values(), key=lambda session: (session.created, session.id))

    async def open(self, who: Principal, user: str) -> tuple[str, Session]:
        """A new session, and the token that is in no record of ours."""
        own = sum(session.subject == who.name for session in self._records.all.values())
        if len(self._records.all) >= MOST or own >= MOST_EACH:
            raise TooManySessions("too many sessions are open", hint="close some, or wait until they time out")
        token = secrets.token_hex(32)
        digest = _digest(token)
        lease = await self._store.grant(self._timeout)
        session = Session(
            id=_ident(digest), hash=digest, subject=who.name, user=user, created=self._clock(), lease=lease
        )
        self._renewed[session.id] = self._clock()
        await self._records.put(who.name, session.id, session, expected=0, action="open", lease=lease)
        return token, session

    async def use(self, token: str) -> Session:
        """The session that this token is of, which lives on; ``Unauthenticated`` if there is none."""
        digest = _digest(token)
        # One that another controller has just opened may not have reached us yet.
        session = self._records.find(_ident(digest)) or await self._records.fetch(_ident(digest))
        if session is None or not hmac.compare_digest(digest, session.hash):
            raise Unauthenticated("the session is unknown, or has ended", hint="log in again")
        last = self._renewed.get(session.id, 0.0)
        if self._clock() - last > self._timeout / _RENEWALS:
            self._renewed[session.id] = self._clock()
            beside(self._renewals, self._renew(session), name="session renewal")
        return session

    async def close(self, who: Principal, ident: str) -> None:
        """End one."""
        session = self.get(ident)
        await self._records.delete(who.name, ident, action="close")
        await self._store.revoke(session.lease)

    async def close_all(self, who: Principal, subject: str) -> None:
        """End all sessions of somebody: a password was changed, an account removed."""
        for session in self.all():
            if session.subject == subject:
                await self.close(who, session.id)

    async def _renew(self, session: Session) -> None:
        try:
            if not await self._store.renew(session.lease):
                await self._records.fetch(session.id)  # it has ended
        except StrataError as error:
            self._renewed.pop(session.id, None)
            log.warning("cannot renew a session", extra={"reason": str(error)})

    def _changed(self, ident: str, session: Session | None) -> None:
        if session is None:
            self._renewed.pop(ident, None)


def _digest(token: str) -> bytes:
    # The token is 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(token.encode()).digest()


def _ident(digest: bytes) -> str:
    """Where a token's session is kept; of the digest, so that any controller finds it. Tells nothing of the token."""
    return digest[:8].hex()
