"""Local accounts that jobs run as: which is whose, and which never are.

A service that is root runs jobs as any account of a person. One that is not runs them as its own, and no other.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Callable, Mapping

from strata.core.errors import Denied
from strata.fleet.access.principal import Principal
from strata.schedulers.runner import Account, look_up

_KNOWN_FOR = 60.0
"""Seconds for which an account is taken to be what it was: the next question would go to a directory server."""


class LocalAccounts:
    """``rule``: credential → account, as the settings say it. ``own``: the number of the account that this service
    runs as."""

    def __init__(
        self,
        rule: Mapping[str, str],
        first_uid: int,
        *,
        look_up: Callable[[str], Account | None] = look_up,
        own: int | None = None,
    ) -> None:
        self._rule = rule
        self._first_uid = first_uid
        self.look_up = look_up
        self.own = os.geteuid() if own is None else own
        self._known: dict[str, tuple[float, Account | None]] = {}

    async def of(self, who: Principal) -> Account:
        """The account that the jobs of ``who`` run as. ``Denied``: none."""
        return await self.named(self.name_of(who))

    def name_of(self, who: Principal) -> str:
        """Its name. Whoever opens the local socket is the account of this service."""
        if who.via == "socket":
            try:
                return pwd.getpwuid(self.own).pw_name
            except KeyError:
                raise Denied(f"this service runs as {self.own}, which has no name", where="account") from None
        if who.via == "oidc":
            # What a provider calls somebody is no account: only a rule of ours makes it one.
            if not who.account:
                hint = "ask an administrator for a rule with an account: oidc.rules in the configuration file"
                raise Denied(f"{who.name} has no account here", where="account", hint=hint)
            return who.account
        for pattern, account in (self._rule or {"*": "*"}).items():
            before, star, after = pattern.partition("*")
            if not star:
                if who.name == pattern:
                    return account
            elif who.name.startswith(before) and who.name.endswith(after) and len(who.name) > len(before + after):
                return account.replace("*", who.name[len(before) : len(who.name) - len(after)])
        hint = "ask an administrator for a rule: jobs.accounts in the configuration file"
        raise Denied(f"{who.name} has no account here", where="account", hint=hint)

    async def named(self, name: str) -> Account:
        """An account that jobs may run as. ``Denied``: it must not be, or this service cannot."""
        found = await self._find(name)
        if found is None:
            hint = "a credential with the name of a local account, or a rule: jobs.accounts in the configuration file"
            raise Denied(f"this machine has no account {name[:80]!r}", where="account", hint=hint)
        if found.uid == 0 or found.gid == 0:
            hint = "use a token of an ordinary user, or, as administrator, --account NAME"
            raise Denied("jobs cannot run as root", where="account", hint=hint)
        if self.own not in (0, found.uid):
            told = f"this service is not root (uid {self.own}) and runs jobs only as its own account"
            raise Denied(told, where="account", hint=f"not of {name}")
        if found.uid < self._first_uid and self.own == 0:
            told = f"{name} is an account of the system ({found.uid}; jobs run as {self._first_uid} and above)"
            raise Denied(told, where="account")
        return found

    async def _find(self, name: str) -> Account | None:
        at, found = self._known.get(name, (-_KNOWN_FOR, None))
        if not name or time.monotonic() - at < _KNOWN_FOR:
            return found
        found = await asyncio.to_thread(self.look_up, name)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[name] = (time.monotonic(), found)
        return found
