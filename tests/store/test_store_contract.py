"""One contract, every store: what ``strata.store.protocol`` promises, over memory, SQLite and a real etcd."""

import asyncio
import itertools
from pathlib import Path

import pytest
from store_support import eventually, watching

from strata.core.errors import BadRequest, Compacted, Conflict, Corrupt, NotFound, Refused
from strata.store.dump import check_dump
from strata.store.open import open_store
from strata.store.protocol import Delete, Event, Op, Put, Store
from strata.store.restore import restore


async def test_what_was_put_is_got(store: Store) -> None:
    revision = await store.txn([Put("a", b"\x00value\xff")])
    entry = await store.get("a")
    assert entry is not None
    assert (entry.key, entry.value, entry.created, entry.modified, entry.lease) == (
        "a",
        b"\x00value\xff",
        revision,
        revision,
        0,
    )
    assert await store.revision() == revision


async def test_a_key_that_was_never_put_is_none(store: Store) -> None:
    assert await store.get("a") is None


async def test_an_empty_value_is_a_value(store: Store) -> None:
    await store.txn([Put("a", b"")])
    entry = await store.get("a")
    assert entry is not None
    assert entry.value == b""


async def test_every_change_has_a_revision_one_above_the_last(store: Store) -> None:
    first = await store.txn([Put("a", b"1")])
    assert await store.txn([Put("b", b"2"), Put("c", b"3")]) == first + 1
    assert await store.txn([Delete("a")]) == first + 2


async def test_operations_of_one_transaction_share_a_revision(store: Store) -> None:
    revision = await store.txn([Put("a", b"1"), Put("b", b"2")])
    page = await store.range("")
    assert [(e.key, e.modified) for e in page.entries] == [("a", revision), ("b", revision)]


async def test_created_stays_and_modified_moves(store: Store) -> None:
    first = await store.txn([Put("a", b"1")])
    second = await store.txn([Put("a", b"2")])
    entry = await store.get("a")
    assert entry is not None
    assert (entry.created, entry.modified) == (first, second)


async def test_a_key_put_after_its_deletion_is_created_anew(store: Store) -> None:
    await store.txn([Put("a", b"1")])
    await store.txn([Delete("a")])
    third = await store.txn([Put("a", b"2")])
    entry = await store.get("a")
    assert entry is not None
    assert entry.created == third


async def test_a_transaction_that_changes_nothing_has_no_revision_of_its_own(store: Store) -> None:
    revision = await store.txn([Put("a", b"1")])
    assert await store.txn([Delete("never")]) == revision
    assert await store.txn([]) == revision


async def test_two_writers_on_one_field_conflict_instead_of_losing_an_update(store: Store) -> None:
    revision = await store.txn([Put("a", b"start")])
    results = await asyncio.gather(
        *(store.txn([Put("a", f"{i}".encode())], expect={"a": revision}) for i in range(5)), return_exceptions=True
    )
    won = [r for r in results if isinstance(r, int)]
    lost = [r for r in results if isinstance(r, Conflict)]
    assert (len(won), len(lost)) == (1, 4)
    assert {e.revision for e in lost} == {won[0]}
    assert {e.where for e in lost} == {"a"}


async def test_a_conflict_changes_nothing(store: Store) -> None:
    revision = await store.txn([Put("a", b"1"), Put("b", b"1")])
    with pytest.raises(Conflict):
        await store.txn([Put("a", b"2"), Delete("b"), Put("c", b"2")], expect={"b": revision, "a": revision - 1})
    page = await store.range("")
    assert [(e.key, e.value) for e in page.entries] == [("a", b"1"), ("b", b"1")]
    assert await store.revision() == revision


async def test_expecting_zero_means_that_the_key_must_not_exist(store: Store) -> None:
    revision = await store.txn([Put("a", b"1")], expect={"a": 0})
    with pytest.raises(Conflict, match="exists already") as caught:
        await store.txn([Put("a", b"2")], expect={"a": 0})
    assert caught.value.revision == revision


async def test_expecting_a_key_that_is_gone_conflicts(store: Store) -> None:
    revision = await store.txn([Put("a", b"1")])
    await store.txn([Delete("a")])
    with pytest.raises(Conflict, match="is gone"):
        await store.txn([Put("a", b"2")], expect={"a": revision})


async def test_a_key_can_be_expected_without_being_written(store: Store) -> None:
    revision = await store.txn([Put("leader", b"me")])
    await store.txn([Put("a", b"1")], expect={"leader": revision})
    await store.txn([Put("leader", b"you")])
    with pytest.raises(Conflict):
        await store.txn([Put("a", b"2")], expect={"leader": revision})


async def test_concurrent_counters_lose_no_increment(store: Store) -> None:
    await store.txn([Put("n", b"0")])

    async def increment() -> None:
        while True:
            entry = await store.get("n")
            assert entry is not None
            try:
                await store.txn([Put("n", str(int(entry.value) + 1).encode())], expect={"n": entry.modified})
                return
            except Conflict:
                continue

    await asyncio.gather(*(increment() for _ in range(8)))
    entry = await store.get("n")
    assert entry is not None
    assert entry.value == b"8"


@pytest.mark.parametrize(
    "ops",
    [
        [Put("a", b"1"), Put("a", b"2")],
        [Put("a", b"1"), Delete("a")],
        [Put("", b"1")],
        [Put("a\n", b"1")],
        [Put("a" * 1025, b"1")],
        [Put("\ud800", b"1")],
    ],
    ids=["twice", "put-and-delete", "empty", "control", "long", "surrogate"],
)
async def test_a_bad_transaction_is_refused_whole(store: Store, ops: list[Op]) -> None:
    with pytest.raises(BadRequest):
        await store.txn([Put("good", b"1"), *ops])
    assert await store.get("good") is None


async def test_a_transaction_takes_max_ops_and_no_more(store: Store) -> None:
    await store.txn([Put(f"k{i}", b"") for i in range(store.max_ops)])
    assert len((await store.range("k")).entries) == store.max_ops
    with pytest.raises(BadRequest, match="split"):
        await store.txn([Put(f"k{i}", b"") for i in range(store.max_ops + 1)])


async def test_a_range_holds_the_prefix_in_order_and_nothing_else(store: Store) -> None:
    await store.txn([Put(k, b"") for k in ("b/2", "a", "b/10", "b0", "b", "b/é", "b/~", "c")])
    page = await store.range("b/")
    assert [e.key for e in page.entries] == ["b/10", "b/2", "b/~", "b/é"]
    assert not page.more


async def test_the_empty_prefix_is_everything(store: Store) -> None:
    await store.txn([Put(k, b"") for k in ("b", "a", "\U0010ffff", "\ud7ff")])
    assert [e.key for e in (await store.range("")).entries] == ["a", "b", "\ud7ff", "\U0010ffff"]


async def test_pages_of_a_range_join_without_gap_or_repeat_at_one_revision(store: Store) -> None:
    await store.txn([Put(f"k{i:02}", b"old") for i in range(25)])
    first = await store.range("k", limit=10)
    assert first.more
    await store.txn([Put("k03", b"new"), Delete("k15"), Put("k155", b"new"), Put("k20", b"new")])
    seen = list(first.entries)
    page = first
    while page.more:
        page = await store.range("k", after=page.entries[-1].key, limit=10, revision=first.revision)
        seen += page.entries
        assert page.revision == first.revision
    assert [(e.key, e.value) for e in seen] == [(f"k{i:02}", b"old") for i in range(25)]


async def test_a_limit_that_is_just_met_leaves_no_more(store: Store) -> None:
    await store.txn([Put(f"k{i}", b"") for i in range(3)])
    assert not (await store.range("k", limit=3)).more
    assert (await store.range("k", limit=2)).more


async def test_after_a_key_that_is_gone_reading_goes_on(store: Store) -> None:
    await store.txn([Put(k, b"") for k in ("a1", "a2", "a3")])
    await store.txn([Delete("a2")])
    assert [e.key for e in (await store.range("a", after="a2")).entries] == ["a3"]
    assert [e.key for e in (await store.range("a", after="A")).entries] == ["a1", "a3"]


async def test_a_past_revision_reads_as_it_was(store: Store) -> None:
    first = await store.txn([Put("a", b"1"), Put("b", b"1")])
    second = await store.txn([Put("a", b"2"), Delete("b"), Put("c", b"2")])
    third = await store.txn([Put("a", b"3"), Put("b", b"3")])

    async def at(revision: int) -> dict[str, tuple[bytes, int, int]]:
        return {e.key: (e.value, e.created, e.modified) for e in (await store.range("", revision=revision)).entries}

    assert await at(first) == {"a": (b"1", first, first), "b": (b"1", first, first)}
    assert await at(second) == {"a": (b"2", first, second), "c": (b"2", second, second)}
    assert await at(third) == {"a": (b"3", first, third), "b": (b"3", third, third), "c": (b"2", second, second)}


async def test_a_future_revision_cannot_be_read(store: Store) -> None:
    with pytest.raises(BadRequest, match="future"):
        await store.range("", revision=await store.revision() + 10)


async def test_a_large_range_comes_whole(store: Store) -> None:
    value = bytes(60_000)
    for start in range(0, 120, 20):
        await store.txn([Put(f"big/{i:03}", value) for i in range(start, start + 20)])
    page = await store.range("big/")
    assert [len(e.value) for e in page.entries] == [60_000] * 120


async def test_after_compaction_the_past_is_gone_and_the_present_is_not(store: Store) -> None:
    first = await store.txn([Put("a", b"1"), Put("keep", b"1")])
    second = await store.txn([Put("a", b"2"), Put("gone", b"2")])
    third = await store.txn([Delete("gone")])
    await store.compact(third)
    with pytest.raises(Compacted) as caught:
        await store.range("", revision=second)
    assert caught.value.oldest == third
    for revision in (third, None):
        page = await store.range("", revision=revision)
        assert [(e.key, e.value, e.modified) for e in page.entries] == [("a", b"2", second), ("keep", b"1", first)]
    assert await store.revision() == third
    assert await store.check() == []


async def test_compacting_twice_or_further_back_is_harmless_and_the_future_is_refused(store: Store) -> None:
    for value in (b"1", b"2", b"3"):
        revision = await store.txn([Put("a", value)])
    await store.compact(revision)
    await store.compact(revision)
    await store.compact(revision - 1)
    with pytest.raises(BadRequest, match="future"):
        await store.compact(revision + 100)
    assert [e.value for e in (await store.range("", revision=revision)).entries] == [b"3"]


async def test_a_watch_sees_every_change_once_in_order(store: Store) -> None:
    start = await store.revision() + 1
    await store.txn([Put("w/a", b"1"), Put("other", b"1")])
    async with watching(store, "w/", start) as watcher:
        await store.txn([Put("w/b", b"2"), Put("w/a", b"2")])
        last = await store.txn([Delete("w/a"), Delete("w/never")])
        events = await watcher.until(last)
    assert [(e.revision - start, e.key, e.value) for e in events] == [
        (0, "w/a", b"1"),
        (1, "w/b", b"2"),
        (1, "w/a", b"2"),
        (2, "w/a", None),
    ]


async def test_a_list_and_a_watch_from_the_next_revision_miss_nothing(store: Store) -> None:
    stop = asyncio.Event()

    async def write() -> int:
        number = 0
        while not stop.is_set():
            number += 1
            await store.txn([Put(f"k{number % 7}", str(number).encode())])
            # A store in memory never waits, so the loop needs a turn.
            await asyncio.sleep(0)
        return await store.txn([Put("k0", b"last")])

    writer = asyncio.create_task(write())
    await eventually(lambda: _has(store, "k6"))
    page = await store.range("k")
    state = {e.key: e.value for e in page.entries}
    async with watching(store, "k", page.revision + 1) as watcher:
        await watcher.next()
        stop.set()
        events = await watcher.until(await writer)
    for event in events:
        assert event.value is not None
        state[event.key] = event.value
    assert [e.revision for e in events] == list(range(page.revision + 1, events[-1].revision + 1))
    assert state == {e.key: e.value for e in (await store.range("k")).entries}


async def _has(store: Store, key: str) -> bool:
    return await store.get(key) is not None


async def test_a_watch_from_zero_sees_what_comes(store: Store) -> None:
    await store.txn([Put("a", b"before")])
    async with watching(store, "", 0) as watcher:
        task = asyncio.create_task(watcher.next())
        written = 0
        while not task.done():
            # Etcd's "now" is when the watch has begun, which nobody is told.
            written = await store.txn([Put("a", b"after")])
            await asyncio.sleep(0.01)
        assert all(e.value == b"after" for e in await task)
        assert (await watcher.until(written))[-1].revision == written


async def test_a_watch_from_the_future_waits_for_it(store: Store) -> None:
    now = await store.revision()
    async with watching(store, "", now + 3) as watcher:
        for value in (b"1", b"2", b"3"):
            await store.txn([Put("a", value)])
        assert await watcher.next() == [Event(now + 3, "a", b"3")]


async def test_a_watch_never_splits_a_revision(store: Store) -> None:
    start = await store.revision() + 1
    width = min(store.max_ops, 1500)
    for round_ in range(4):
        last = await store.txn([Put(f"k{i}", bytes([round_]) * 50) for i in range(width)])
    async with watching(store, "k", start) as watcher:
        await watcher.until(last)
    assert len(watcher.events) == 4 * width
    ends = [(batch[0].revision, batch[-1].revision) for batch in watcher.batches]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))


async def test_a_watch_from_a_compacted_revision_says_so(store: Store) -> None:
    first = await store.txn([Put("a", b"1")])
    second = await store.txn([Put("a", b"2"), Put("b", b"2")])
    third = await store.txn([Delete("b")])
    await store.compact(second)
    for start in (first, second):
        async with watching(store, "", start) as watcher:
            with pytest.raises(Compacted) as caught:
                await watcher.next()
            assert caught.value.oldest == third
    async with watching(store, "", third) as watcher:
        assert await watcher.next() == [Event(third, "b", None)]


async def test_a_slow_watcher_is_served_from_the_log_or_told_that_it_was_compacted(store: Store) -> None:
    start = await store.revision() + 1
    async with watching(store, "k", start) as slow:
        await store.txn([Put("k", b"first")])
        await slow.next()
        for number in range(60):
            last = await store.txn([Put("k", f"{number}".encode())])
        events = await slow.until(last)
        assert [e.revision for e in events] == list(range(start, last + 1))


async def test_a_reconnect_storm_of_watchers_sees_the_same(store: Store) -> None:
    start = await store.revision() + 1
    for number in range(20):
        last = await store.txn([Put(f"k{number}", b"")])

    async def resume_often() -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < last:
            async with watching(store, "k", seen[-1] + 1 if seen else start) as watcher:
                seen += [e.revision for e in await watcher.next()]
        return seen

    for seen in await asyncio.gather(*(resume_often() for _ in range(10))):
        assert seen == list(range(start, last + 1))


async def test_the_end_of_a_lease_deletes_its_keys_at_one_revision(store: Store) -> None:
    lease = await store.grant(30)
    await store.txn([Put("l/a", b"1", lease), Put("l/b", b"1", lease), Put("l/c", b"1")])
    before = await store.revision()
    entry = await store.get("l/a")
    assert entry is not None
    assert entry.lease == lease
    async with watching(store, "l/", before + 1) as watcher:
        await store.revoke(lease)
        assert await watcher.next() == [Event(before + 1, "l/a", None), Event(before + 1, "l/b", None)]
    assert [e.key for e in (await store.range("l/")).entries] == ["l/c"]


async def test_a_lease_that_has_ended_can_neither_be_renewed_nor_used(store: Store) -> None:
    lease = await store.grant(30)
    assert await store.renew(lease)
    await store.revoke(lease)
    await store.revoke(lease)
    assert not await store.renew(lease)
    with pytest.raises(NotFound, match="lease has ended"):
        await store.txn([Put("a", b"1", lease)])
    assert await store.get("a") is None


async def test_a_key_put_without_its_lease_outlives_it(store: Store) -> None:
    lease, other = await store.grant(30), await store.grant(30)
    await store.txn([Put("a", b"1", lease), Put("b", b"1", lease), Put("c", b"1", lease)])
    await store.txn([Put("a", b"2"), Put("b", b"2", other), Delete("c")])
    await store.txn([Put("c", b"2")])
    await store.revoke(lease)
    assert [(e.key, e.lease) for e in (await store.range("")).entries] == [("a", 0), ("b", other), ("c", 0)]


@pytest.mark.slow
async def test_a_lease_that_nobody_renews_ends_by_itself(store: Store) -> None:
    lease = await store.grant(2)
    revision = await store.txn([Put("member", b"", lease)])
    async with watching(store, "member", revision + 1) as watcher:
        assert await watcher.next() == [Event(revision + 1, "member", None)]
    assert not await store.renew(lease)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
async def test_a_lease_without_a_sensible_length_is_refused(store: Store, ttl: float) -> None:
    with pytest.raises(BadRequest):
        await store.grant(ttl)


async def test_a_backup_restores_into_every_kind_of_store(store: Store, tmp_path: Path) -> None:
    await store.txn([Put("a", b"old"), Put("gone", b"")])
    await store.txn([Put("a", b"\x00new"), Delete("gone"), Put("b", b"")])
    lease = await store.grant(30)
    await store.txn([Put("member", b"", lease)])
    backup = tmp_path / "backup"
    revision = await store.backup(backup)
    assert revision == await store.revision()
    await store.txn([Put("later", b"")])
    target = f"sqlite:{tmp_path / 'restored.db'}"
    assert await restore(backup, target) > await store.revision()
    restored = open_store(target)
    assert [(e.key, e.value) for e in (await restored.range("")).entries] == [("a", b"\x00new"), ("b", b"")]
    assert await restored.check() == []
    await restored.close()


async def test_a_restored_store_goes_on(store_url: str, kind: str, tmp_path: Path) -> None:
    source = open_store("memory:")
    for number in range(300):
        backed_up = await source.txn([Put(f"k{number:03}", b"x")])
    backup = tmp_path / "backup"
    await source.backup(backup)
    target = open_store(store_url)
    await target.load((await source.range("")).entries, backed_up + 1000)  # type: ignore[attr-defined]
    base = await target.revision()
    assert base > backed_up + 1000
    assert len((await target.range("k")).entries) == 300
    entry = await target.get("k007")
    assert entry is not None
    revision = await target.txn([Put("k007", b"y")], expect={"k007": entry.modified})
    assert revision == base + 1
    async with watching(target, "k", base + 1) as watcher:
        assert await watcher.next() == [Event(revision, "k007", b"y")]
    with pytest.raises(Compacted):
        await target.range("", revision=backed_up)
    await target.close()


async def test_a_restore_does_not_overwrite_unless_told(
    store: Store, store_url: str, kind: str, tmp_path: Path
) -> None:
    await store.txn([Put("new", b"")])
    backup = tmp_path / "backup"
    await store.backup(backup)
    entries = (await store.range("")).entries
    await store.txn([Put("newer", b"")])
    before = await store.revision()
    with pytest.raises(Refused, match="not empty"):
        await store.load(entries, 0)  # type: ignore[attr-defined]
    await store.load(entries, 0, overwrite=True)  # type: ignore[attr-defined]
    assert [e.key for e in (await store.range("")).entries] == ["new"]
    assert await store.revision() > before


async def test_a_backup_under_load_equals_a_prefix_of_history(store: Store, tmp_path: Path) -> None:
    stop = asyncio.Event()
    start = await store.revision() + 1

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await store.txn([Put(f"k{number % 50}", str(number).encode()), Put("last", str(number).encode())])
            # A store in memory never waits, so the loop needs a turn.
            await asyncio.sleep(0)

    writer = asyncio.create_task(write())
    await eventually(lambda: _has(store, "k40"))
    backup = tmp_path / "backup"
    revision = await store.backup(backup)
    stop.set()
    await writer
    assert check_dump(backup).revision == revision
    target = f"sqlite:{tmp_path / 'restored.db'}"
    await restore(backup, target)
    restored = open_store(target)
    state = {e.key: e.value for e in (await restored.range("")).entries}
    await restored.close()
    replayed: dict[str, bytes | None] = {}
    async with watching(store, "", start) as watcher:
        for event in await watcher.until(revision):
            if event.revision <= revision:
                replayed[event.key] = event.value
    assert state == replayed


async def test_a_sound_store_passes_its_check(store: Store) -> None:
    await store.txn([Put(f"k{i}", bytes([i])) for i in range(100)])
    await store.txn([Delete("k5"), Put("k6", b"")])
    assert await store.check() == []


async def test_closing_ends_watches(store: Store) -> None:
    async with watching(store, "", 0) as watcher:
        waiting = asyncio.create_task(watcher.next())
        await asyncio.sleep(0)
        await store.revision()
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_damaged_backup_is_not_restored(store: Store, tmp_path: Path) -> None:
    await store.txn([Put("a", b"value")])
    backup = tmp_path / "backup"
    await store.backup(backup)
    whole = backup.read_bytes()
    for damaged in (whole[:-1], whole[:-70], whole.replace(b"value", b"valuf"), whole + b"x"):
        backup.write_bytes(damaged)
        with pytest.raises(Corrupt):
            await restore(backup, "memory:")
    backup.write_bytes(b"something else")
    with pytest.raises(BadRequest):
        await restore(backup, "memory:")
