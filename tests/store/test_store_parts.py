"""The parts that stores are made of: addresses, key rules, the shared feed, the backup's file."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from store_support import Clock, watching

from strata.core.errors import BadRequest, Unavailable
from strata.store import feed as feed_module
from strata.store.dump import DumpWriter, read_dump, write_dump
from strata.store.etcd.gateway import EtcdSettings
from strata.store.etcd.store import EtcdStore
from strata.store.etcd.wire import Names, seal, unseal
from strata.store.followed import Followed
from strata.store.keys import end_of
from strata.store.memory import MemoryStore
from strata.store.open import open_store
from strata.store.protocol import Entry, Event, Put
from strata.store.sqlite.store import SqliteStore
from support.odd_bmc import OddBmc


@pytest.mark.parametrize(
    "url", ["", "memory", "memory:x", "sqlite:", "redis://x", "etcd:host:1", "etcd://", "etcd://host", "etcd:///p"]
)
def test_an_address_that_names_no_store_is_refused_with_the_forms_that_do(url: str) -> None:
    with pytest.raises(BadRequest, match="etcd://HOST:PORT"):
        open_store(url)


async def test_what_was_read_before_a_change_and_comes_after_it_changes_nothing() -> None:
    store, seen = MemoryStore(), dict[str, bytes | None]()
    await store.txn([Put("a/n", b"old")])
    followed = Followed(store, "a/", seen.__setitem__, seen.clear)
    await followed.start()
    try:
        old = await store.get("a/n")
        assert old is not None
        await store.txn([Put("a/n", b"new")])
        async with asyncio.timeout(120):
            while seen["a/n"] != b"new":  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        followed.wrote("a/n", old.value, old.modified)
        assert seen["a/n"] == b"new"
    finally:
        await followed.stop()
        await store.close()


async def test_an_address_names_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    store = open_store(f"sqlite:{tmp_path / 'new' / 's.db'}")
    assert isinstance(store, SqliteStore)
    await store.close()
    etcd = open_store("etcd://a:1,[::1]:2/site/strata")
    assert isinstance(etcd, EtcdStore)
    assert etcd._gateway.endpoints == ["a:1", "[::1]:2"]
    assert etcd._names.key("node/n1") == b"/site/strata/node/n1"


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(_text, _text)
def test_the_end_of_a_prefix_is_above_its_keys_and_below_no_other(prefix: str, other: str) -> None:
    end = end_of(prefix)
    assert end is None or prefix + other < end
    if end is not None and prefix <= other < end:
        assert other.startswith(prefix)


@given(_text.filter(bool), _text)
def test_etcds_names_order_and_end_as_ours_do(prefix: str, other: str) -> None:
    names = Names("p")
    assert names.key(prefix) <= names.key(prefix + other) < names.end(prefix)
    assert names.ours(names.key(prefix)) == prefix
    if names.key(prefix) <= names.key(other) < names.end(prefix) and len(prefix.encode()) == len(prefix):
        assert other.startswith(prefix)


@given(_text, st.binary(max_size=20), st.integers(0, 1000))
def test_a_sealed_value_opens_and_one_with_a_flipped_bit_does_not(key: str, value: bytes, bit: int) -> None:
    sealed = seal(key, value)
    assert unseal(key, sealed) == value
    broken = bytearray(sealed)
    broken[bit // 8 % len(broken)] ^= 1 << bit % 8
    with pytest.raises(Unavailable, match="checksum"):
        unseal(key, bytes(broken))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_watcher_costs_no_memory_however_slow_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEEP_EVENTS", 10)
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    start = await store.revision() + 1
    async with watching(store, "k", start) as slow:
        for number in range(100):
            last = await store.txn([Put(f"k{number}", b""), Put("other", b"")])
        await asyncio.sleep(0)
        assert store._feed._events <= 12
        assert [e.revision for e in await slow.until(last)] == list(range(start, last + 1))
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("remembered", [1, 10_000], ids=["from-the-log", "from-memory"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_batches_are_bounded_and_hold_whole_revisions(
    kind: str, remembered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEEP_EVENTS", remembered)
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    start = await store.revision() + 1
    for number in range(12):
        last = await store.txn([Put(f"k{i}", bytes([number])) for i in range(300)])
    async with watching(store, "k", start) as watcher:
        await watcher.until(last)
    assert [len(batch) for batch in watcher.batches] == [1200, 1200, 1200]
    assert [e.revision for e in watcher.events] == [start + n for n in range(12) for _ in range(300)]
    await store.close()


async def test_a_watcher_in_the_middle_of_what_is_remembered_gets_the_rest(tmp_path: Path) -> None:
    store = MemoryStore()
    revisions = [await store.txn([Put(f"k{i}", b"")]) for i in range(10)]
    async with watching(store, "k", revisions[6]) as watcher:
        assert [e.revision for e in await watcher.next()] == revisions[6:]


async def test_a_watcher_sleeps_while_nothing_concerns_it_and_misses_nothing_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_module, "KEEP_EVENTS", 10)
    woken = 0

    class Counted(feed_module.Feed):
        async def _wait(self, prefix: str, start: int) -> int:
            nonlocal woken
            found = await super()._wait(prefix, start)
            woken += 1
            return found

    async def read_log(prefix: str, start: int, limit: int) -> tuple[list[Event], int]:
        raise AssertionError("what is remembered is enough")

    feed = Counted(0)
    stream = feed.follow("a/", 1, read_log)
    first = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    for revision in range(1, 101):
        feed.publish(revision, [Event(revision, f"b/{revision}", b"")])
        if revision % 10 == 0:
            await asyncio.sleep(0)
    feed.publish(101, [Event(101, "b/x", b""), Event(101, "a/1", b"")])
    feed.publish(102, [Event(102, "a/2", b"")])
    assert [event.key for event in await first] == ["a/1", "a/2"]
    assert woken == 1
    last = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    feed.close()
    with pytest.raises(StopAsyncIteration):
        await last


async def test_leases_in_memory_follow_the_loops_clock(tmp_path: Path) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    lease = await store.grant(10)
    await store.txn([Put("a", b"", lease)])
    clock.now += 9
    assert await store.renew(lease)
    clock.now += 9
    assert await store.get("a") is not None
    clock.now += 2
    assert await store.get("a") is None
    assert not await store.renew(lease)


def test_a_backup_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> object:
        yield Entry("a", b"1", 2, 2)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        write_dump(tmp_path / "backup", 5, fails())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot write the backup"):
        DumpWriter(tmp_path / "no" / "such" / "folder", 5)


@pytest.mark.slow
@given(st.lists(st.tuples(_text, st.binary(max_size=50)), max_size=20))
def test_what_a_backup_holds_is_what_was_put_in(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, bytes]]
) -> None:
    entries = [Entry(key, value, 3, 4) for key, value in pairs]
    path = tmp_path_factory.mktemp("store") / "backup"
    write_dump(path, 9, [*entries, Entry("leased", b"", 3, 4, lease=7)])
    assert list(read_dump(path)) == entries


async def test_a_member_of_etcd_that_sends_us_elsewhere_is_not_followed() -> None:
    async with OddBmc({}) as elsewhere, OddBmc({}) as member:
        for path in ("/v3/kv/range", "/v3/kv/txn", "/v3/kv/put", "/v3/maintenance/status"):
            member.answers["POST", path] = lambda asked: web.Response(
                status=307, headers={"Location": f"{elsewhere.address}{asked.path}"}
            )
        settings = EtcdSettings(attempt=5.0, patience=0.2)
        store = EtcdStore([member.address.removeprefix("http://")], "p", settings)
        with pytest.raises(Unavailable):
            await store.get("a")
        await store.close()
        assert member.asked
        assert elsewhere.asked == []


def test_a_store_with_a_login_in_its_address_is_refused_and_not_repeated():
    with pytest.raises(BadRequest) as refused:
        open_store("etcd://alice:pw@host:2379/strata")
    assert "user name or password" in str(refused.value)
    assert "pw" not in str(refused.value)
