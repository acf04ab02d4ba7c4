"""Accounts: people and programs with a name and a password, for protocols that know no tokens (Redfish).

The store holds a salted scrypt hash under ``auth/account/<name>``. Checking a password takes time on purpose and
happens in a thread; who guesses is locked out for a while, and a name that does not exist costs and answers the same as
one that does.
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

from strata.core.errors import BadRequest, Conflict, Unauthenticated, Unavailable
from strata.fleet.access.principal import Principal, Role
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

log = logging.getLogger(__name__)

LEAST_PASSWORD = 12
MOST_PASSWORD = 256
LOCK_AFTER = 5
"""Wrong passwords in a row after which a name is locked."""
LOCK_TIME = 60.0
"""Seconds that a lock lasts, and after which wrong passwords are forgotten."""

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


class Lockout:
    """Locks a name for a while after too many wrong passwords. Counted in memory, so that guessing writes nothing;
    names that nobody has are counted too, so that they tell nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def locks(self, name: str) -> bool:
        """Whether there were too many just now."""
        count, last = self._counts.get(name, (0, 0.0))
        return count >= LOCK_AFTER and self._clock() < last + LOCK_TIME

    def add(self, name: str) -> None:
        """One more. It does not prolong a lock, or anybody could keep the owner out for ever."""
        if self.locks(name):
            return
        now = self._clock()
        count, last = self._counts.pop(name, (0, 0.0))
        self._counts[name] = (count + 1 if now < last + LOCK_TIME and count < LOCK_AFTER else 1, now)
        while len(self._counts) > _MOST_ACCOUNTS:
            self._counts.popitem(last=False)

    def forget(self, name: str) -> None:
        """The right one was given, or somebody with the right to do so unlocks it."""
        self._counts.pop(name, None)


class Accounts:
    """The accounts of the store."""

    def __init__(self, store: Store, ledger: Ledger, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._records = Records(store, ledger, Account, kind="account", prefix="auth/account/")
        self.start = self._records.start
        self.stop = self._records.stop
        self.get = self._records.get
        self._checking = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._lockout = Lockout(clock)
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """Passwords that were good: a keyed digest of each, the revision of its account, and until when."""

    # looking

    def names(self) -> list[str]:
        return sorted(self._records.all)

    def holder(self, name: str) -> Principal:
        """Who holds the account, for somebody who has logged in before; ``Unauthenticated`` if it is not good now."""
        account = self._records.find(name)
        if account is None or not account.enabled:
            raise Unauthenticated("the account is gone or disabled")
        return account.principal

    def is_locked(self, name: str) -> bool:
        """Whether too many wrong passwords were given just now, on this controller."""
        return self._lockout.locks(name)

    # checking

    async def check(self, name: str, password: str) -> Principal:
        """Who has this password, or ``Unauthenticated``."""
        mark = hmac.digest(self._secret, f"{name}\0{password}".encode(), "sha256")
        known = self._known.get(mark)
        if known is not None and known[0] == self._records.revision(name) and self._clock() < known[1]:
            return self.holder(name)
        account, revision = self._records.find(name), self._records.revision(name)
        found = await self._hash(password[:MOST_PASSWORD], account.salt if account else b"-" * 16)
        right = hmac.compare_digest(found, account.hash if account else b"")
        # A locked account is not told apart from a wrong password, and costs the same.
        if not right or account is None or not account.enabled or self.is_locked(name):
            self._lockout.add(name)
            log.warning("wrong password", extra={"account": name if account else "(unknown)"})
            raise Unauthenticated(_WRONG)
        self._lockout.forget(name)
        self._known[mark] = (revision, self._clock() + _REMEMBERED)
        while len(self._known) > _MOST_ACCOUNTS:
            self._known.popitem(last=False)
        return self.holder(name)

    def unlock(self, name: str) -> None:
        """Forget the wrong passwords."""
        self._lockout.forget(name)

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
        name = _checked_name(name)
        _check_password(password, name)
        if self._records.find(name) is not None:
            raise Conflict("there is an account of that name", where=name)
        if len(self._records.all) >= _MOST_ACCOUNTS:
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
        return await self._records.put(who.name, name, account, expected=0, action="create", detail=_detail(account))

    async def change(self, who: Principal, name: str, change: AccountChange) -> Account:
        """Change one; ``Conflict`` if somebody else did so meanwhile."""
        account, revision = self.get(name), self._records.revision(name)
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
        return await self._records.put(
            who.name, name, account, expected=revision, action="change", detail=_detail(account)
        )

    async def delete(self, who: Principal, name: str) -> None:
        await self._records.delete(who.name, name)


def _detail(account: Account) -> dict[str, object]:
    """What the audit log says of a change."""
    return {"role": account.role, "scope": list(account.scope), "enabled": account.enabled}


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
        raise BadRequest("a password must not contain the name", where="Password")
