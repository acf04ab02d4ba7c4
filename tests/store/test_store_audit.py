"""The ledger: a change and its record are one, and the chain shows whatever was done to it."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest, Conflict, OutcomeUnknown, Unavailable
from strata.core.redact import HIDDEN, redact
from strata.store.audit import CHECKPOINT, HEAD, AuditEntry, Ledger, audit_key, entry_hash, verify
from strata.store.memory import MemoryStore
from strata.store.protocol import Delete, Op, Put, Store


@pytest.fixture
async def ledger(store: Store) -> Ledger:
    return Ledger(store)


async def _commits(ledger: Ledger, count: int) -> None:
    for number in range(count):
        await ledger.commit("ann", "put", f"k{number}", [Put(f"k{number}", b"")], detail={"number": number})


async def test_a_change_and_its_record_are_one_transaction(store: Store, ledger: Ledger) -> None:
    revision = await ledger.commit("ann", "node.hold", "n1", [Put("hold/n1", b"x")], detail={"reason": "broken fan"})
    changed = await store.range("", revision=revision)
    assert {e.key: e.modified for e in changed.entries} == {
        "hold/n1": revision,
        audit_key(1): revision,
        HEAD: revision,
    }
    (entry,) = await ledger.entries()
    assert (entry.seq, entry.author, entry.action, entry.target) == (1, "ann", "node.hold", "n1")
    assert entry.detail == {"reason": "broken fan"}


async def test_a_refused_change_leaves_no_record(store: Store, ledger: Ledger) -> None:
    await ledger.commit("ann", "put", "a", [Put("a", b"1")])
    with pytest.raises(Conflict) as caught:
        await ledger.commit("bob", "put", "a", [Put("a", b"2")], expect={"a": 0})
    assert caught.value.where == "a"
    assert len(await ledger.entries()) == 1
    await ledger.commit("bob", "put", "a", [Put("a", b"3")])
    assert (await verify(store)).ok


async def test_ledgers_that_write_at_once_make_one_chain(store: Store) -> None:
    ledgers = [Ledger(store) for _ in range(3)]
    await asyncio.gather(
        *(
            ledger.commit(f"author{i}", "put", "", [Put(f"k{i}/{n}", b"")])
            for n in range(5)
            for i, ledger in enumerate(ledgers)
        )
    )
    report = await verify(store)
    assert (report.ok, report.count) == (True, 15)
    assert len((await store.range("k")).entries) == 15


async def test_a_sound_chain_verifies_whatever_its_length(store: Store, ledger: Ledger) -> None:
    assert (await verify(store)).ok
    await _commits(ledger, 7)
    report = await verify(store)
    assert (report.ok, report.count, report.first_bad) == (True, 7, None)


async def _swap(store: Store, one: int, other: int) -> list[Op]:
    a, b = await store.get(audit_key(one)), await store.get(audit_key(other))
    assert a is not None
    assert b is not None
    return [Put(a.key, b.value), Put(b.key, a.value)]


async def _altered(store: Store, seq: int, *, rehash: bool, **fields: object) -> list[Op]:
    stored = await store.get(audit_key(seq))
    assert stored is not None
    entry = msgspec.structs.replace(msgspec.msgpack.decode(stored.value, type=AuditEntry), **fields)
    if rehash:
        entry = msgspec.structs.replace(entry, hash=entry_hash(entry))
    return [Put(stored.key, msgspec.msgpack.encode(entry))]


FORGERIES: dict[str, tuple[Callable[[Store], object], int]] = {
    "altered": (lambda s: _altered(s, 4, rehash=False, author="eve"), 4),
    "altered-detail": (lambda s: _altered(s, 4, rehash=False, detail={"number": 99}), 4),
    "altered-and-rehashed": (lambda s: _altered(s, 4, rehash=True, author="eve"), 5),
    "last-altered-and-rehashed": (lambda s: _altered(s, 9, rehash=True, author="eve"), 9),
    "reordered": (lambda s: _swap(s, 3, 5), 3),
    "removed": (lambda s: _ops(Delete(audit_key(4))), 4),
    "first-removed": (lambda s: _ops(Delete(audit_key(1))), 1),
    "cut-short": (lambda s: _ops(Delete(audit_key(8)), Delete(audit_key(9))), 8),
    "head-removed": (lambda s: _ops(Delete(HEAD)), 9),
    "unreadable": (lambda s: _ops(Put(audit_key(6), b"\xff")), 6),
    "all-removed": (lambda s: _ops(*(Delete(audit_key(i)) for i in range(1, 10))), 1),
}


async def _ops(*ops: Op) -> list[Op]:
    return list(ops)


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_chain_is_found_out_and_the_place_is_named(forgery: str) -> None:
    store = MemoryStore()
    await _commits(Ledger(store), 9)
    forge, first_bad = FORGERIES[forgery]
    await store.txn(await forge(store))  # type: ignore[misc]
    report = await verify(store)
    assert (report.ok, report.first_bad) == (False, first_bad)
    assert str(first_bad) in report.reason or "head" in report.reason


async def test_a_forged_checkpoint_that_hides_a_removal_is_found_out() -> None:
    store = MemoryStore()
    ledger = Ledger(store)
    await _commits(ledger, 9)
    fourth = (await ledger.entries())[3]
    hide: list[Op] = [Delete(audit_key(i)) for i in range(1, 5)]
    await store.txn([*hide, Put(CHECKPOINT, msgspec.msgpack.encode({"seq": 4, "hash": fourth.hash}))])
    report = await verify(store)
    assert (report.ok, report.first_bad) == (False, 4)
    assert "nobody recorded it" in report.reason


async def test_a_pruned_chain_still_verifies_and_shows_who_pruned(store: Store) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1
        return now

    ledger = Ledger(store, clock=clock)
    await _commits(ledger, 9)
    assert await ledger.prune(5.5, "ann") == 5
    assert [e.seq for e in await ledger.entries()] == [6, 7, 8, 9, 10]
    assert (await ledger.latest(1))[0].author == "ann"
    assert (await verify(store)).ok
    await _commits(ledger, 2)
    assert await ledger.prune(8.5, "bob") == 3
    assert (await verify(store)).ok
    assert await ledger.prune(0, "bob") == 0
    await store.txn([Delete(audit_key(9))])
    assert (await verify(store)).first_bad == 9


async def test_a_prune_that_was_interrupted_still_verifies() -> None:
    store = MemoryStore()
    ledger = Ledger(store)
    await _commits(ledger, 5)
    third = (await ledger.entries())[2]
    said = {"through": 3, "hash": third.hash}
    await ledger.commit(
        "ann",
        "audit.prune",
        "audit",
        [Put(CHECKPOINT, msgspec.msgpack.encode({"seq": 3, "hash": third.hash}))],
        detail=said,
    )
    assert (await verify(store)).ok


async def test_what_does_not_fit_into_one_transaction_becomes_several(store: Store, ledger: Ledger) -> None:
    assert ledger.room == store.max_ops - 2
    count = ledger.room + 10 if store.max_ops < 1000 else 20
    ops = [Put(f"k{i:05}", bytes(60_000 if store.max_ops > 1000 else 10)) for i in range(count)]
    revision = await ledger.commit_many("ann", "import", "all", ops, expect={"k00000": 0, "k00015": 0, "other": 0})
    assert len((await store.range("k")).entries) == count
    entries = await ledger.entries()
    assert [e.detail for e in entries] == [{"part": 1, "parts": 2}, {"part": 2, "parts": 2}]
    assert revision == await store.revision()
    with pytest.raises(BadRequest):
        await ledger.commit("ann", "import", "all", [Put(f"k{i}", b"") for i in range(ledger.room + 1)])


async def test_nobody_writes_without_a_name_or_into_the_log(ledger: Ledger) -> None:
    with pytest.raises(BadRequest, match="author"):
        await ledger.commit("", "put", "a", [Put("a", b"")])
    with pytest.raises(BadRequest, match="ledger only"):
        await ledger.commit("eve", "put", "a", [Put(audit_key(1), b"")])


async def test_pages_of_the_log_join(ledger: Ledger) -> None:
    await _commits(ledger, 5)
    first = await ledger.entries(limit=2)
    rest = await ledger.entries(since=first[-1].seq)
    assert [e.seq for e in [*first, *rest]] == [1, 2, 3, 4, 5]
    assert [e.seq for e in await ledger.latest(2)] == [5, 4]


async def test_a_canary_secret_does_not_reach_the_log(store: Store, ledger: Ledger) -> None:
    canary = "CANARY7f3a"
    await ledger.commit(
        "ann",
        "auth.mint",
        f"token strata_ab12_{canary}xyz",
        [],
        detail={
            "password": canary,
            "nested": [{"apiKey": canary, "Client-Secret": canary, "private_key": canary}],
            "header": f"Bearer {canary}",
            "note": "keyboard, monkey",
            "pem": f"-----BEGIN PRIVATE KEY-----\n{canary}",
        },
    )
    page = await store.range("audit/")
    assert not any(canary.encode() in e.value for e in page.entries)
    (entry,) = await ledger.entries()
    assert entry.detail["note"] == "keyboard, monkey"
    assert (await verify(store)).ok


class _LosesAnswers(MemoryStore):
    """Does what it is told, and loses the answer as often as it is told to."""

    lose_after = 0
    lose_before = 0

    async def txn(self, ops, *, expect=None):  # type: ignore[no-untyped-def]
        if self.lose_before:
            self.lose_before -= 1
            raise OutcomeUnknown("lost before")
        revision = await super().txn(ops, expect=expect)
        if self.lose_after:
            self.lose_after -= 1
            raise OutcomeUnknown("lost after")
        return revision


@pytest.mark.parametrize("when", ["lose_after", "lose_before"])
async def test_a_commit_whose_answer_was_lost_is_done_once(when: str) -> None:
    store = _LosesAnswers()
    ledger = Ledger(store)
    await _commits(ledger, 2)
    setattr(store, when, 1)
    revision = await ledger.commit("ann", "put", "a", [Put("a", b"")])
    entry = await store.get("a")
    assert entry is not None
    assert entry.modified == revision
    await _commits(ledger, 1)
    assert [e.action for e in await ledger.entries()] == ["put"] * 4
    assert (await verify(store)).ok


class _AlwaysBusy(MemoryStore):
    """Somebody else is always faster."""

    async def txn(self, ops, *, expect=None):  # type: ignore[no-untyped-def]
        raise Conflict("changed", where=HEAD)


async def test_a_ledger_that_never_gets_its_turn_gives_up_in_words() -> None:
    with pytest.raises(Unavailable, match="busy"):
        await Ledger(_AlwaysBusy()).commit("ann", "put", "a", [Put("a", b"")])


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@given(_plain)
def test_redacting_twice_is_redacting_once(value: object) -> None:
    assert redact(redact(value)) == redact(value)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=8), _plain, max_size=4))
def test_a_record_has_one_hash_whatever_the_order_of_its_details(detail: dict[str, object]) -> None:
    def record(said: dict[str, object]) -> AuditEntry:
        return AuditEntry(seq=1, time=1.5, author="a", action="b", target="c", detail=said, prev="", hash="")

    turned = dict(reversed(detail.items()))
    assert entry_hash(record(detail)) == entry_hash(record(turned))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(record(detail)), type=AuditEntry)
    assert entry_hash(stored) == entry_hash(record(detail))


@pytest.mark.parametrize("name", ["password", "db_passwd", "token", "accessToken", "key", "api-key", "KEYS", "cookie"])
def test_a_value_under_a_telling_name_is_blacked_out(name: str) -> None:
    assert redact({name: "x"}) == {name: HIDDEN}


@pytest.mark.parametrize("name", ["keyboard", "monkey", "node", "reason", "keynote"])
def test_a_value_under_another_name_stays(name: str) -> None:
    assert redact({name: "x"}) == {name: "x"}
