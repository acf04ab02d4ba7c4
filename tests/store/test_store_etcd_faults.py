"""What the etcd store does when members die or stop, answers are lost, or stored bytes are wrong."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from cutting_proxy import CuttingProxy
from store_support import watching

from strata.core.errors import BadRequest, Conflict, Corrupt, OutcomeUnknown, Unavailable
from strata.store.audit import Ledger, verify
from strata.store.etcd.gateway import EtcdSettings, OutOfRange
from strata.store.etcd.store import EtcdStore
from strata.store.etcd.wire import Names, seal
from strata.store.protocol import Delete, Event, Put
from support.etcd_cluster import EtcdCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

QUICK = EtcdSettings(attempt=1.0, patience=20.0, probe=0.3)


@pytest.fixture
def cluster(etcd_cluster: EtcdCluster) -> Iterator[EtcdCluster]:
    """The cluster, whole again afterwards."""
    yield etcd_cluster
    etcd_cluster.heal()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def store(cluster: EtcdCluster, prefix: str) -> AsyncIterator[EtcdStore]:
    made = EtcdStore(cluster.endpoints, prefix, QUICK)
    yield made
    await made.close()


async def _write_through(store: EtcdStore, harm: asyncio.Event, count: int) -> dict[str, int]:
    """Write until ``count`` writes were acknowledged after the harm was done."""
    acknowledged: dict[str, int] = {}
    after = number = 0
    while after < count:
        number += 1
        after += harm.is_set()
        key = f"k/{number:05}"
        acknowledged[key] = await store.txn([Put(key, b"x")])
    return acknowledged


@pytest.mark.parametrize("harm", ["kill", "pause"])
@pytest.mark.parametrize("whom", ["leader", "ours"])
async def test_a_member_lost_during_writes_costs_no_acknowledged_write_and_no_watch(
    cluster: EtcdCluster, store: EtcdStore, harm: str, whom: str
) -> None:
    start = await store.revision() + 1
    ours = next(n for n in cluster.names if cluster.endpoint(n) == store._gateway.current())
    member = cluster.leader() if whom == "leader" else ours
    done = asyncio.Event()
    async with watching(store, "k/", start) as watcher:
        writing = asyncio.create_task(_write_through(store, done, 20))
        await watcher.next()
        await asyncio.to_thread(getattr(cluster, harm), member)
        done.set()
        acknowledged = await writing
        events = await watcher.until(max(acknowledged.values()))
    assert {e.key: e.modified for e in (await store.range("k/")).entries} == acknowledged
    assert [(e.key, e.revision) for e in events] == list(acknowledged.items())


async def test_without_a_majority_nothing_is_acknowledged_and_it_recovers_by_itself(
    cluster: EtcdCluster, prefix: str
) -> None:
    store = EtcdStore(cluster.endpoints, prefix, EtcdSettings(attempt=0.5, patience=1.0))
    patient = EtcdStore(cluster.endpoints, prefix, QUICK)
    await patient.txn([Put("a", b"before")])
    lost = cluster.names[1:]
    for name in lost:
        cluster.pause(name)
    with pytest.raises((OutcomeUnknown, Unavailable)):
        await store.txn([Put("a", b"doubtful")])
    with pytest.raises(Unavailable):
        await store.get("a")
    for name in lost:
        await asyncio.to_thread(cluster.resume, name)
    await patient.txn([Put("a", b"after")])
    entry = await patient.get("a")
    assert entry is not None
    assert entry.value == b"after"
    await store.close()
    await patient.close()


async def test_nobody_there_means_that_nothing_was_changed(prefix: str) -> None:
    store = EtcdStore(["127.0.0.1:1", "127.0.0.1:2"], prefix, EtcdSettings(attempt=0.2, patience=0.3))
    with pytest.raises(Unavailable, match="nobody answers") as caught:
        await store.txn([Put("a", b"1")])
    assert "127.0.0.1:1" in str(caught.value)
    await store.close()


@pytest.fixture
async def cut(cluster: EtcdCluster, prefix: str) -> AsyncIterator[tuple[CuttingProxy, EtcdStore]]:
    """A store behind a proxy that can swallow answers."""
    async with CuttingProxy(cluster.endpoints[0]) as proxy:
        made = EtcdStore([proxy.endpoint], prefix, QUICK)
        await made.txn([Put("warm", b"")])
        yield proxy, made
        await made.close()


async def test_a_write_whose_answer_was_lost_is_done_once(cut: tuple[CuttingProxy, EtcdStore]) -> None:
    proxy, store = cut
    before = await store.revision()
    proxy.swallow = 1
    assert await store.txn([Put("a", b"1"), Put("b", b"1"), Delete("warm")]) == before + 1
    assert await store.revision() == before + 1
    assert not proxy.swallow


async def test_a_compare_and_swap_whose_answer_was_lost_is_done_once(cut: tuple[CuttingProxy, EtcdStore]) -> None:
    proxy, store = cut
    revision = await store.txn([Put("a", b"0")])
    proxy.swallow = 1
    assert await store.txn([Put("a", b"1")], expect={"a": revision}) == revision + 1
    with pytest.raises(Conflict):
        await store.txn([Put("a", b"1")], expect={"a": revision})


async def test_an_answer_lost_while_others_write_is_admitted(
    cut: tuple[CuttingProxy, EtcdStore], store: EtcdStore
) -> None:
    proxy, behind = cut
    revision = await behind.txn([Put("a", b"0")])
    proxy.swallow = 2
    writing = asyncio.create_task(behind.txn([Put("a", b"mine")], expect={"a": revision}))
    async with watching(store, "a", revision + 1) as watcher:
        await watcher.next()
        await store.txn([Put("a", b"theirs")])
    with pytest.raises(OutcomeUnknown):
        await writing


async def test_a_ledger_knows_from_its_own_chain_whether_a_lost_answer_was_yes(
    cut: tuple[CuttingProxy, EtcdStore], store: EtcdStore
) -> None:
    proxy, behind = cut
    ledger = Ledger(behind)
    await ledger.commit("ann", "first", "x", [Put("x", b"0")])
    for number in range(5):
        proxy.swallow = number % 3
        await ledger.commit("ann", "count", "x", [Put("x", str(number).encode())])
    assert [e.detail for e in await ledger.entries()] == [{}] * 6
    assert (await verify(store)).count == 6


async def test_a_value_that_etcd_returns_altered_is_not_served(store: EtcdStore, prefix: str) -> None:
    revision = await store.txn([Put("good", b"1"), Put("bad", b"1")])
    altered = bytearray(seal("bad", b"1"))
    altered[0] ^= 1
    async with watching(store, "", revision + 1) as watcher:
        await _raw_put(store, Names(prefix).key("bad"), bytes(altered))
        with pytest.raises(Corrupt, match="bad"):
            await store.get("bad")
        with pytest.raises(Corrupt):
            await watcher.next()
    assert await store.get("good") is not None
    assert len([f for f in await store.check() if "checksum" in f]) == 3


async def test_a_member_that_is_away_is_a_finding_of_the_check(cluster: EtcdCluster, store: EtcdStore) -> None:
    await store.txn([Put("a", b"1")])
    assert await store.check() == []
    cluster.kill("m2")
    assert [f for f in await store.check() if cluster.endpoint("m2") in f]


async def test_a_store_whose_restore_was_interrupted_is_not_used_until_it_is_restored_again(
    cluster: EtcdCluster, store: EtcdStore, prefix: str
) -> None:
    await store.txn([Put("half", b"")])
    await _raw_put(store, Names(prefix).meta, seal("meta", b'{"offset":0,"restoring":true}'))
    fresh = EtcdStore(cluster.endpoints, prefix, QUICK)
    with pytest.raises(Unavailable, match="did not finish"):
        await fresh.get("half")
    await fresh.load([], 0)
    assert (await fresh.range("")).entries == ()
    await fresh.close()


async def test_two_prefixes_are_two_stores(cluster: EtcdCluster, store: EtcdStore, prefix: str) -> None:
    neighbour = EtcdStore(cluster.endpoints, prefix + "-b", QUICK)
    await neighbour.txn([Put("a", b"theirs")])
    start = await store.txn([Put("a", b"ours")])
    async with watching(store, "", start) as watcher:
        await neighbour.txn([Put("a", b"theirs again")])
        last = await store.txn([Put("b", b"ours")])
        assert await watcher.until(last) == [Event(start, "a", b"ours"), Event(last, "b", b"ours")]
    assert [e.value for e in (await store.range("")).entries] == [b"ours", b"ours"]
    await neighbour.close()


async def test_a_transaction_larger_than_etcd_takes_is_refused_in_words(store: EtcdStore) -> None:
    with pytest.raises(BadRequest, match="too large"):
        await store.txn([Put("a", bytes(3_000_000))])
    assert await store.get("a") is None


async def test_a_watch_message_larger_than_the_gateways_limit_arrives_whole(store: EtcdStore) -> None:
    start = await store.revision() + 1
    for number in range(8):
        last = await store.txn([Put(f"k{number}{i}", bytes(270_000)) for i in range(3)])
    async with watching(store, "k", start) as watcher:
        events = await watcher.until(last)
    assert [len(e.value or b"") for e in events] == [270_000] * 24
    assert {len(batch) % 3 for batch in watcher.batches} == {0}


async def _raw_put(store: EtcdStore, key: bytes, value: bytes) -> None:
    """Write past the store, as a damaged disk would."""
    import base64

    body = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{store._gateway.endpoints[0]}/v3/kv/put", json=body) as reply,
    ):
        assert reply.status == 200


async def test_a_member_that_is_a_little_behind_is_waited_for(
    cluster: EtcdCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EtcdStore(cluster.endpoints, prefix, QUICK)
    await store.txn([Put("a", b"1")])
    behind, once = [OutOfRange(compacted=False)] * 2, store._gateway.once

    async def late(endpoint: str, path: str, body: Any, kind: Any) -> Any:
        if endpoint == cluster.endpoint("m2") and body.get("serializable") and behind:
            raise behind.pop()
        return await once(endpoint, path, body, kind)

    monkeypatch.setattr(store._gateway, "once", late)
    assert await store.check() == []
    assert not behind
    await store.close()
