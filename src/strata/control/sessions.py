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

from strata.control.auth import Commits
from strata.control.principal import Principal
from strata.core.errors import NotFound, StrataError, Unauthenticated, Unavailable
from strata.store.followed import Followed
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

TIMEOUT = 1800
"""Seconds without a request after which a session ends."""
MOST = 10_000
MOST_EACH = 100
"""Sessions of one account or token."""

_PREFIX = "redfish-session/"
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
        ledger: Commits,
        *,
        clock: Callable[[], float] = time.time,
        timeout: float = TIMEOUT,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._timeout = timeout
        self._sessions: dict[str, Session] = {}
        self._renewed: dict[str, float] = {}
        self._renewals: set[asyncio.Task[None]] = set()
        self._followed = Followed(store, _PREFIX, self._take, self._sessions.clear)

    async def start(self) -> None:
        """Load all sessions, then follow their changes until ``stop``."""
        await self._followed.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._followed.stop()
        for task in list(self._renewals):
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)

    def all(self) -> list[Session]:
        """All of them, oldest first."""
        return sorted(self._sessions.values(), key=lambda session: (session.created, session.id))

    def get(self, ident: str) -> Session:
        """One of them, or ``NotFound``."""
        session = self._sessions.get(ident)
        if session is None:
            raise NotFound("no such session", where=repr(ident)[:80])
        return session

    async def open(self, who: Principal, user: str) -> tuple[str, Session]:
        """A new session, and the token that is in no record of ours."""
        own = sum(session.subject == who.name for session in self._sessions.values())
        if len(self._sessions) >= MOST or own >= MOST_EACH:
            raise TooManySessions("too many sessions are open", hint="close some, or wait until they time out")
        token = secrets.token_hex(32)
        digest = _digest(token)
        lease = await self._store.grant(self._timeout)
        session = Session(
            id=_ident(digest), hash=digest, subject=who.name, user=user, created=self._clock(), lease=lease
        )
        key, value = _PREFIX + session.id, msgspec.msgpack.encode(session)
        revision = await self._ledger.commit(who.name, "open-session", key, [Put(key, value, lease)], {key: 0}, {})
        self._renewed[session.id] = self._clock()
        self._followed.wrote(key, value, revision)
        return token, session

    async def use(self, token: str) -> Session:
        """The session that this token is of, which lives on; ``Unauthenticated`` if there is none."""
        digest = _digest(token)
        session = self._sessions.get(_ident(digest)) or await self._look_up(_ident(digest))
        if session is None or not hmac.compare_digest(digest, session.hash):
            raise Unauthenticated("the session is unknown, or has ended", hint="log in again")
        last = self._renewed.get(session.id, 0.0)
        if self._clock() - last > self._timeout / _RENEWALS:
            self._renewed[session.id] = self._clock()
            task = asyncio.create_task(self._renew(session), name="session renewal")
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)
        return session

    async def close(self, who: Principal, ident: str) -> None:
        """End one."""
        session = self.get(ident)
        key = _PREFIX + ident
        revision = await self._ledger.commit(who.name, "close-session", key, [Delete(key)])
        self._followed.wrote(key, None, revision)
        await self._store.revoke(session.lease)

    async def close_all(self, who: Principal, subject: str) -> None:
        """End all sessions of somebody: a password was changed, an account removed."""
        for session in self.all():
            if session.subject == subject:
                await self.close(who, session.id)

    async def _look_up(self, ident: str) -> Session | None:
        """One that another controller has just opened, and whose news has not reached us."""
        entry = await self._store.get(_PREFIX + ident)
        if entry is None:
            return None
        self._take(entry.key, entry.value)
        return self._sessions.get(ident)

    async def _renew(self, session: Session) -> None:
        try:
            if not await self._store.renew(session.lease):
                self._take(_PREFIX + session.id, None)
        except StrataError as error:
            self._renewed.pop(session.id, None)
            log.warning("cannot renew a session", extra={"reason": str(error)})

    def _take(self, key: str, value: bytes | None) -> None:
        ident = key.removeprefix(_PREFIX)
        self._sessions.pop(ident, None)
        if value is None:
            self._renewed.pop(ident, None)
            return
        try:
            self._sessions[ident] = msgspec.msgpack.decode(value, type=Session)
        except msgspec.MsgspecError:
            log.error("unreadable session record", extra={"key": key})


def _digest(token: str) -> bytes:
    # The token is 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(token.encode()).digest()


def _ident(digest: bytes) -> str:
    """Where a token's session is kept; of the digest, so that any controller finds it. Tells nothing of the token."""
    return digest[:8].hex()
