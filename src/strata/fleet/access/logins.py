"""Logging in with a name and a password, and the sessions that follow: accounts, tokens and sessions put together.

A token is accepted as the password of its own id, so that a site needs no second kind of secret.
"""

from __future__ import annotations

from strata.core.errors import Unauthenticated
from strata.fleet.access.accounts import Accounts
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import Principal
from strata.fleet.access.sessions import Session, Sessions


class Logins:
    """Who may come in."""

    def __init__(self, accounts: Accounts, sessions: Sessions, authenticator: Authenticator) -> None:
        self.accounts = accounts
        self.sessions = sessions
        self._authenticator = authenticator

    async def start(self) -> None:
        """Load accounts and sessions, and follow them until ``stop``."""
        await self.accounts.start()
        await self.sessions.start()

    async def stop(self) -> None:
        await self.sessions.stop()
        await self.accounts.stop()

    async def check(self, user: str, password: str) -> Principal:
        """Who this is, or ``Unauthenticated``."""
        if password.startswith("strata_"):
            who = self._authenticator.token(password)
            if who.credential != user:
                raise Unauthenticated("the user name of a token is its id", hint="strata_<id>_<secret>")
            return who
        return await self.accounts.check(user, password)

    async def open(self, user: str, password: str) -> tuple[str, Session, Principal]:
        """A new session: its token, which is nowhere else, and its record."""
        who = await self.check(user, password)
        token, session = await self.sessions.open(who, user)
        return token, session, who

    async def session(self, token: str) -> Principal:
        """Who opened the session with this token, as far as that is still somebody."""
        session = await self.sessions.use(token)
        kind, _, ident = session.subject.partition(":")
        if kind == "token":
            return self._authenticator.token_holder(ident)
        return self.accounts.holder(ident)

    def must_change_password(self, who: Principal) -> bool:
        """Whether nothing but that may be done."""
        return who.via == "password" and self.accounts.get(who.credential).must_change
