"""Accounts: people and programs with a name and a password, for protocols that know no tokens (Redfish).

The store holds a salted scrypt hash under ``auth/account/<name>``; every change is in the audit log. Records are held
in memory and kept fresh by a watch. Checking a password takes time on purpose and happens in a thread; who guesses is
locked out for a while, and a name that does not exist costs and answers the same as one that does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.control.auth import Commits
from strata.control.guesses import Guesses
from strata.control.principal import Principal, Role
from strata.core.errors import BadRequest, Conflict, NotFound, Unauthenticated, Unavailable
from strata.store.followed import Followed
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

LEAST_PASSWORD = 12
MOST_PASSWORD = 256

_PREFIX = "auth/account/"
_MOST_ACCOUNTS = 10_000
_WAITING = 64
"""Passwords that wait to be checked; whoever comes then is asked to try later."""
_AT_ONCE = 2
_REMEMBERED = 300.0
"""Seconds that a checked password is known to be good: a client that sends it with every request pays once."""
_WRONG = "the user name or password is wrong, or the account is locked or disabled"

AccountName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$(?!\n)", max_length=63)]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account as it is stored."""

    name: str
    role: Role
    scope: tuple[str, ...] = ()
    salt: bytes
    hash: bytes
    enabled: bool = True
    must_change: bool = False
    """The password must be changed before anything else may be done."""
    created: float
    changed: float
    """When the password was last set."""
    author: str

    def __repr__(self) -> str:
        return f"Account({self.name}, {self.role})"

    @property
    def principal(self) -> Principal:
        """Who holds it."""
        return Principal(
            name=f"account:{self.name}", role=self.role, scope=self.scope, via="password", credential=self.name
        )


class AccountChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change; None: left as it is."""

    password: str | None = None
    role: Role | None = None
    scope: tuple[str, ...] | None = None
    enabled: bool | None = None
    must_change: bool | None = None

    def __repr__(self) -> str:
        return "AccountChange()"


class Accounts:
    """The accounts of the store."""

    def __init__(self, store: Store, ledger: Commits, *, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._versions: dict[str, int] = {}
        """At which change of an account (ours or another controller's) we are: a remembered password is of one."""
        self._followed = Followed(store, _PREFIX, self._take, self._forget_all)
        self._store = store
        self._checking = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._guesses = Guesses(clock)
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """Passwords that were good: a keyed digest of each, the version of its account, and until when."""

    async def start(self) -> None:
        """Load all accounts, then follow their changes until ``stop``."""
        await self._followed.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._followed.stop()

    # looking

    def names(self) -> list[str]:
        """All of them, in order."""
        return sorted(self._accounts)

    def get(self, name: str) -> Account:
        """One of them, or ``NotFound``."""
        account = self._accounts.get(name)
        if account is None:
            raise NotFound("no such account", where=repr(name)[:80])
        return account

    def holder(self, name: str) -> Principal:
        """Who holds the account, for somebody who has logged in before; ``Unauthenticated`` if it is not good now."""
        account = self._accounts.get(name)
        if account is None or not account.enabled:
            raise Unauthenticated("the account is gone or disabled")
        return account.principal

    def is_locked(self, name: str) -> bool:
        """Whether too many wrong passwords were given just now, on this controller."""
        return self._guesses.locks(name)

    # checking

    async def check(self, name: str, password: str) -> Principal:
        """Who has this password, or ``Unauthenticated``."""
        mark = hmac.digest(self._secret, f"{name}\0{password}".encode(), "sha256")
        known = self._known.get(mark)
        if known is not None and known[0] == self._versions.get(name) and self._clock() < known[1]:
            return self.holder(name)
        account, version = self._accounts.get(name), self._versions.get(name, 0)
        found = await self._hash(password[:MOST_PASSWORD], account.salt if account else b"-" * 16)
        right = hmac.compare_digest(found, account.hash if account else b"")
        # A locked account is not told apart from a wrong password, and costs the same.
        if not right or account is None or not account.enabled or self.is_locked(name):
            self._guesses.add(name)
            log.warning("wrong password", extra={"account": name if account else "(unknown)"})
            raise Unauthenticated(_WRONG)
        self._guesses.forget(name)
        self._known[mark] = (version, self._clock() + _REMEMBERED)
        while len(self._known) > _MOST_ACCOUNTS:
            self._known.popitem(last=False)
        return self.holder(name)

    def unlock(self, name: str) -> None:
        """Forget the wrong passwords."""
        self._guesses.forget(name)

    async def _hash(self, password: str, salt: bytes) -> bytes:
        if self._waiting >= _WAITING:
            raise Unavailable("too many passwords are being checked", hint="use a session or a token, or try later")
        self._waiting += 1
        try:
            async with self._checking:
                return await asyncio.to_thread(hash_password, password, salt)
        finally:
            self._waiting -= 1

    # changing

    async def create(
        self,
        who: Principal,
        name: str,
        password: str,
        role: Role,
        *,
        scope: tuple[str, ...] = (),
        must_change: bool = False,
        enabled: bool = True,
    ) -> Account:
        """A new account."""
        name = _checked_name(name)
        _check_password(password, name)
        if name in self._accounts:
            raise Conflict("there is an account of that name", where=name)
        if len(self._accounts) >= _MOST_ACCOUNTS:
            raise BadRequest(f"there are at most {_MOST_ACCOUNTS} accounts", hint="delete one first")
        salt = secrets.token_bytes(16)
        now = self._clock()
        account = Account(
            name=name,
            role=role,
            scope=scope,
            salt=salt,
            hash=await self._hash(password, salt),
            enabled=enabled,
            must_change=must_change,
            created=now,
            changed=now,
            author=who.name,
        )
        await self._write(who, "create-account", account, expected=0)
        return account

    async def change(self, who: Principal, name: str, change: AccountChange) -> Account:
        """Change one; ``Conflict`` if somebody else did so meanwhile."""
        account = self.get(name)
        entry = await self._store.get(_PREFIX + name)
        if entry is None or entry.value != msgspec.msgpack.encode(account):
            # Another controller was first, and its news is on the way to us.
            raise Conflict("the account has changed meanwhile", where=name, hint="read it again")
        if change.password is not None:
            _check_password(change.password, name)
            salt = secrets.token_bytes(16)
            account = msgspec.structs.replace(
                account,
                salt=salt,
                hash=await self._hash(change.password, salt),
                changed=self._clock(),
                must_change=False,
            )
        account = msgspec.structs.replace(
            account,
            role=change.role or account.role,
            scope=account.scope if change.scope is None else change.scope,
            enabled=account.enabled if change.enabled is None else change.enabled,
            must_change=account.must_change if change.must_change is None else change.must_change,
        )
        await self._write(who, "change-account", account, expected=entry.modified)
        return account

    async def delete(self, who: Principal, name: str) -> None:
        """Remove one."""
        self.get(name)
        key = _PREFIX + name
        revision = await self._ledger.commit(who.name, "delete-account", key, [Delete(key)])
        self._followed.wrote(key, None, revision)

    async def _write(self, who: Principal, action: str, account: Account, *, expected: int) -> None:
        key, value = _PREFIX + account.name, msgspec.msgpack.encode(account)
        detail = {"role": account.role, "scope": list(account.scope), "enabled": account.enabled}
        revision = await self._ledger.commit(who.name, action, key, [Put(key, value)], {key: expected}, detail)
        self._followed.wrote(key, value, revision)

    # following the store

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(_PREFIX)
        self._versions[name] = self._versions.get(name, 0) + 1
        self._accounts.pop(name, None)
        if value is not None:
            try:
                self._accounts[name] = msgspec.msgpack.decode(value, type=Account)
            except msgspec.MsgspecError:
                # A record that we cannot read lets nobody in.
                log.error("unreadable account record", extra={"key": key})

    def _forget_all(self) -> None:
        self._accounts.clear()
        self._known.clear()


def hash_password(password: str, salt: bytes) -> bytes:
    """Slow and large on purpose: 16 MiB and tens of milliseconds for each guess."""
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1, maxmem=64 * 2**20, dklen=32)


def _checked_name(name: str) -> str:
    try:
        return msgspec.convert(name, AccountName)
    except msgspec.ValidationError:
        raise BadRequest(
            "a name is 1 to 63 letters, digits and '-_.@', first a letter or digit", where="UserName"
        ) from None


def _check_password(password: str, name: str) -> None:
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise BadRequest(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters", where="Password")
    if name.lower() in password.lower():
        raise BadRequest("a password does not contain the name", where="Password")
