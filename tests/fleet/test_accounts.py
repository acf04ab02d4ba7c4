"""Accounts and sessions: what is stored, who gets in, who is kept out, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from strata.core.errors import BadRequest, Conflict, NotFound, Unauthenticated, Unavailable
from strata.fleet.access import accounts as accounts_module
from strata.fleet.access import sessions as sessions_module
from strata.fleet.access.accounts import LOCK_AFTER, LOCK_TIME, AccountChange, Accounts
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.records import TokenRequest
from strata.fleet.access.sessions import Sessions, TooManySessions
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore

PASSWORD = "correct horse battery"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """One controller's view of a store."""

    def __init__(self, store: MemoryStore, clock: Clock, timeout: float = 1800) -> None:
        self.clock = clock
        self.ledger = Ledger(store)
        self.auth = Authenticator(store, self.ledger, clock=clock)
        self.accounts = Accounts(store, self.ledger, clock=clock)
        self.sessions = Sessions(store, self.ledger, clock=clock, timeout=timeout)
        self.logins = Logins(self.accounts, self.sessions, self.auth)


@contextlib.asynccontextmanager
async def running(store: MemoryStore, timeout: float = 1800, clock: Clock | None = None) -> AsyncIterator[Site]:
    site = Site(store, clock or Clock(), timeout)
    await site.auth.start()
    await site.logins.start()
    try:
        yield site
    finally:
        await site.logins.stop()
        await site.auth.stop()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def site(store: MemoryStore) -> AsyncIterator[Site]:
    async with running(store) as found:
        yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hashes that cost nothing, and which passwords were hashed."""
    hashed: list[str] = []

    def hash_password(password: str, salt: bytes) -> bytes:
        hashed.append(password)
        return password.encode() + salt

    monkeypatch.setattr(accounts_module, "hash_password", hash_password)
    return hashed


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def fails(site: Site, name: str, password: str) -> str:
    with pytest.raises(Unauthenticated) as caught:
        await site.logins.check(name, password)
    return str(caught.value)


async def test_the_store_holds_no_password(site: Site, store: MemoryStore) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "operator")
    who = await site.logins.check("ada", PASSWORD)
    assert (who.name, who.role, who.via, who.credential) == ("account:ada", "operator", "password", "ada")
    page = await store.range("")
    assert not any(PASSWORD.encode() in entry.value for entry in page.entries)
    assert PASSWORD not in repr(site.accounts.get("ada"))
    assert PASSWORD not in repr(AccountChange(password=PASSWORD))
    assert [entry.action for entry in await site.ledger.latest()] == ["account.create"]


async def test_a_wrong_password_and_a_wrong_name_are_not_told_apart(site: Site, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "operator")
    quick.clear()
    assert await fails(site, "ada", "something else") == await fails(site, "bob", "something else")
    assert quick == ["something else"] * 2


async def test_guessing_locks_an_account_for_a_while(site: Site, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "operator")
    for _ in range(LOCK_AFTER):
        assert not site.accounts.is_locked("ada")
        await fails(site, "ada", "a guess")
    assert site.accounts.is_locked("ada")
    told = await fails(site, "ada", PASSWORD)
    assert told == await fails(site, "ada", "a guess")
    site.clock.now += LOCK_TIME - 1
    await fails(site, "ada", "a guess")  # does not prolong it
    site.clock.now += 2
    assert (await site.logins.check("ada", PASSWORD)).name == "account:ada"


async def test_an_administrator_unlocks(site: Site, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "operator")
    for _ in range(LOCK_AFTER):
        await fails(site, "ada", "a guess")
    site.accounts.unlock("ada")
    await site.logins.check("ada", PASSWORD)


async def test_a_good_password_is_hashed_once_until_something_changes(site: Site, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "operator")
    quick.clear()
    for _ in range(5):
        await site.logins.check("ada", PASSWORD)
    assert len(quick) == 1
    await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(role="viewer"))
    assert (await site.logins.check("ada", PASSWORD)).role == "viewer"
    assert len(quick) == 2
    await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(password="another password"))
    await fails(site, "ada", PASSWORD)
    site.clock.now += 3600
    await site.logins.check("ada", "another password")
    await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(enabled=False))
    await fails(site, "ada", "another password")


async def test_a_flood_of_guesses_is_sent_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "_WAITING", 0)
    with pytest.raises(Unavailable):
        await site.logins.check("ada", "a guess")


@pytest.mark.parametrize("name", ["", "-a", "a:b", "a/b", "a b", "x" * 64, "a\n"])
async def test_a_bad_name_is_refused(site: Site, name: str) -> None:
    with pytest.raises(BadRequest):
        await site.accounts.create(LOCAL_ADMIN, name, PASSWORD, "viewer")


@pytest.mark.parametrize("password", ["", "short", "x" * 300, "ADA and more of it"])
async def test_a_bad_password_is_refused_and_not_shown(site: Site, password: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await site.accounts.create(LOCAL_ADMIN, "ada", password, "viewer")
    assert not password or password not in str(caught.value)


async def test_one_name_is_one_account(site: Site, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "viewer")
    with pytest.raises(Conflict):
        await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "admin")
    await site.accounts.delete(LOCAL_ADMIN, "ada")
    with pytest.raises(NotFound):
        site.accounts.get("ada")


async def test_other_controllers_know_of_accounts_and_sessions(
    site: Site, store: MemoryStore, quick: list[str]
) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "viewer", scope=("gpu",))
    async with running(store) as other:
        token, session, _ = await site.logins.open("ada", PASSWORD)
        who = await other.logins.session(token)
        assert (who.name, who.scope) == ("account:ada", ("gpu",))
        await other.sessions.close(LOCAL_ADMIN, session.id)
        await until(lambda: not site.sessions.all())
        with pytest.raises(Unauthenticated):
            await site.logins.session(token)


async def test_of_two_controllers_that_change_an_account_one_is_told(
    site: Site, store: MemoryStore, quick: list[str]
) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "viewer")
    async with running(store) as other:
        changes = (
            site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(role="operator")),
            other.accounts.change(LOCAL_ADMIN, "ada", AccountChange(enabled=False)),
        )
        done = await asyncio.gather(*changes, return_exceptions=True)
        assert sorted(type(result).__name__ for result in done) == ["Account", "Conflict"]


async def test_a_password_that_changes_while_it_is_checked_is_not_remembered(
    site: Site, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "viewer")
    real = site.accounts._hash

    async def slow(password: str, salt: bytes) -> bytes:
        found = await real(password, salt)
        monkeypatch.undo()
        await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(password="another password"))
        return found

    monkeypatch.setattr(site.accounts, "_hash", slow)
    await site.logins.check("ada", PASSWORD)
    await fails(site, "ada", PASSWORD)


async def test_a_token_is_the_password_of_its_own_id(site: Site) -> None:
    new = await site.auth.mint(LOCAL_ADMIN, TokenRequest(role="operator", ttl=60))
    assert (await site.logins.check(new.view.id, new.token)).role == "operator"
    await fails(site, "ada", new.token)
    token, _, _ = await site.logins.open(new.view.id, new.token)
    assert (await site.logins.session(token)).credential == new.view.id
    await site.auth.revoke(LOCAL_ADMIN, new.view.id)
    with pytest.raises(Unauthenticated):
        await site.logins.session(token)


async def test_a_session_is_worth_what_its_account_is(site: Site, store: MemoryStore, quick: list[str]) -> None:
    await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "admin")
    token, session, _ = await site.logins.open("ada", PASSWORD)
    page = await store.range("redfish-session/")
    assert token.encode() not in page.entries[0].value
    assert token not in repr(session)
    await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(role="viewer"))
    assert (await site.logins.session(token)).role == "viewer"
    await site.accounts.change(LOCAL_ADMIN, "ada", AccountChange(enabled=False))
    with pytest.raises(Unauthenticated):
        await site.logins.session(token)


@pytest.mark.slow
async def test_a_session_that_lies_idle_ends_and_one_in_use_does_not(quick: list[str]) -> None:
    clock = Clock()
    async with running(MemoryStore(clock=clock), timeout=0.3, clock=clock) as site:
        await site.accounts.create(LOCAL_ADMIN, "ada", PASSWORD, "admin")
        used, _, _ = await site.logins.open("ada", PASSWORD)
        idle, _, _ = await site.logins.open("ada", PASSWORD)
        for _ in range(10):
            clock.now += 0.06
            await site.logins.session(used)
            await until(lambda: not site.sessions._renewals)
        await until(lambda: len(site.sessions.all()) == 1)
        with pytest.raises(Unauthenticated):
            await site.logins.session(idle)


async def test_one_account_cannot_take_all_sessions(
    site: Site, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "MOST_EACH", 2)
    for name in ("ada", "bob"):
        await site.accounts.create(LOCAL_ADMIN, name, PASSWORD, "admin")
    for _ in range(2):
        await site.logins.open("ada", PASSWORD)
    with pytest.raises(TooManySessions):
        await site.logins.open("ada", PASSWORD)
    await site.logins.open("bob", PASSWORD)
