"""Tokens and certificates: what is stored, what is shown, when they stop working."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from route_table import Clock

from strata.core.errors import BadRequest, NotFound, Unauthenticated
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.records import TokenRequest
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Event, Put


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def auth(store: MemoryStore) -> AsyncIterator[Authenticator]:
    authenticator = Authenticator(store, Ledger(store), clock=Clock())
    await authenticator.start()
    yield authenticator
    await authenticator.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until it holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_token_says_who_holds_it(auth: Authenticator) -> None:
    made = await auth.mint(LOCAL_ADMIN, TokenRequest(role="operator", scope=("g1", "g2")))
    who = auth.token(made.token)
    assert (who.role, who.scope, who.via, who.credential) == ("operator", ("g1", "g2"), "token", made.view.id)


async def test_the_secret_is_nowhere_but_in_the_answer(auth: Authenticator, store: MemoryStore) -> None:
    made = await auth.mint(LOCAL_ADMIN, TokenRequest(role="viewer", note="for ci"))
    secret = made.token.split("_", 2)[2]
    everything = b"".join(entry.key.encode() + entry.value for entry in (await store.range("")).entries)
    assert made.view.id.encode() in everything
    assert secret.encode() not in everything
    assert secret not in repr(auth.tokens()) + repr(vars(auth))


async def test_minting_and_revoking_are_in_the_audit_log_with_their_author(
    auth: Authenticator, store: MemoryStore
) -> None:
    made = await auth.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await auth.revoke(LOCAL_ADMIN, made.view.id)
    await auth.revoke_certificate(LOCAL_ADMIN, "0ab")
    found = [(entry.author, entry.action) for entry in await Ledger(store).entries()]
    assert found == [
        ("local-admin", "token.mint"),
        ("local-admin", "token.revoke"),
        ("local-admin", "certificate.revoke"),
    ]


async def test_a_token_of_another_controller_works_and_stops_working_here(
    auth: Authenticator, store: MemoryStore
) -> None:
    other = Authenticator(store, Ledger(store), clock=Clock())
    made = await other.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await until(lambda: bool(auth.tokens()))
    assert auth.token(made.token).role == "viewer"
    await other.revoke(LOCAL_ADMIN, made.view.id)
    await until(lambda: not auth.tokens())
    with pytest.raises(Unauthenticated):
        auth.token(made.token)


class LateStore(MemoryStore):
    """A store whose watch hands over one event each time that the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Semaphore(0)
        self.handed = 0

    async def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        async for batch in super().watch(prefix, start=start):
            for event in batch:
                await self.let.acquire()
                yield [event]
                self.handed += 1


async def test_a_revoked_token_does_not_come_back_with_a_late_event() -> None:
    store = LateStore()
    auth = Authenticator(store, Ledger(store), clock=Clock())
    await auth.start()
    made = await auth.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await auth.revoke(LOCAL_ADMIN, made.view.id)
    # The watch now brings the token's birth, and not yet its end.
    store.let.release()
    await until(lambda: store.handed == 1)
    with pytest.raises(Unauthenticated):
        auth.token(made.token)
    await auth.stop()


async def test_credentials_survive_a_restart(auth: Authenticator, store: MemoryStore) -> None:
    made = await auth.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await auth.revoke_certificate(LOCAL_ADMIN, "AB")
    again = Authenticator(store, Ledger(store), clock=Clock())
    await again.start()
    assert again.token(made.token).role == "viewer"
    with pytest.raises(Unauthenticated, match="revoked"):
        again.certificate("SUCCESS", "00AB", "OU=role:viewer,CN=a,O=Strata")
    await again.stop()


async def test_a_damaged_record_grants_nothing_and_a_damaged_revocation_still_revokes(store: MemoryStore) -> None:
    await store.txn([Put("auth/token/0000000000000000", b"\xc1"), Put("auth/revoked/AB", b"\xc1")])
    auth = Authenticator(store, Ledger(store), clock=Clock())
    await auth.start()
    assert auth.tokens() == []
    with pytest.raises(Unauthenticated, match="revoked"):
        auth.certificate("SUCCESS", "AB", "OU=role:viewer,CN=a,O=Strata")
    await auth.stop()


async def test_after_compaction_the_records_are_listed_again(auth: Authenticator, store: MemoryStore) -> None:
    other = Authenticator(store, Ledger(store), clock=Clock())
    for _ in range(3):
        await other.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await store.compact(await store.revision())
    await other.mint(LOCAL_ADMIN, TokenRequest(role="viewer"))
    await until(lambda: len(auth.tokens()) == 4)


async def test_revoking_what_is_not_there_says_so(auth: Authenticator) -> None:
    with pytest.raises(NotFound):
        await auth.revoke(LOCAL_ADMIN, "0" * 16)
    with pytest.raises(BadRequest):
        await auth.revoke_certificate(LOCAL_ADMIN, "not hex")


@pytest.mark.parametrize(
    ("subject", "role", "scope", "name"),
    [
        ("OU=role:viewer,CN=alice,O=Strata", "viewer", (), "alice"),
        ("OU=scope:b,OU=scope:a,OU=role:operator,CN=bob@site,O=Strata", "operator", ("a", "b"), "bob@site"),
    ],
)
async def test_a_certificate_says_who_holds_it(
    auth: Authenticator, subject: str, role: str, scope: tuple[str, ...], name: str
) -> None:
    who = auth.certificate("SUCCESS", "0AB1", subject)
    assert (who.role, who.scope, who.name, who.credential) == (role, scope, name, "AB1")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "CN=localhost",
        "OU=role:emperor,CN=a,O=Strata",
        "OU=role:admin,CN=a,O=Other",
        "OU=role:admin,CN=a,O=Strata,C=CH",
        "OU=role:admin,CN=a\\,OU=x,O=Strata",
        "OU=role:viewer,OU=role:admin,CN=a,O=Strata",
        "OU=role:admin,CN=a,O=Strata\n",
    ],
)
async def test_a_subject_of_another_shape_is_refused(auth: Authenticator, subject: str) -> None:
    with pytest.raises(Unauthenticated):
        auth.certificate("SUCCESS", "AB", subject)


@given(st.text(max_size=80))
def test_no_other_text_is_a_token(text: str) -> None:
    store = MemoryStore(clock=lambda: 0.0)
    auth = Authenticator(store, Ledger(store))
    with pytest.raises(Unauthenticated) as caught:
        auth.token(text)
    # The same whatever it was: what was sent is not shown.
    assert str(caught.value) == "the bearer token is malformed (a token looks like strata_<id>_<secret>)"
