"""Whether the store takes writes: true on every kind, and false when it does not, though it can be read."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_vfs import FaultyDisk

from strata.fleet.writable import Writable
from strata.store.etcd.gateway import EtcdSettings
from strata.store.etcd.store import EtcdStore
from strata.store.protocol import Put, Store
from strata.store.sqlite.store import SqliteStore
from support.etcd_cluster import EtcdCluster


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    made = FaultyDisk(f"faulty-{uuid.uuid4().hex}")
    yield made
    made.unregister()


async def test_a_store_that_takes_writes_is_writable_and_nobody_sees_the_try(store: Store) -> None:
    revision = await store.txn([Put("a", b"")])
    writable = Writable(store)
    await writable.look()
    assert writable.trouble == ""
    assert await store.revision() == revision
    assert [entry.key for entry in (await store.range("")).entries] == ["a"]


@pytest.mark.parametrize("fault", ["full", "broken", "sync_broken"])
async def test_a_disk_that_takes_nothing_is_noticed_while_reads_go_on_and_so_is_its_recovery(
    disk: FaultyDisk, tmp_path: Path, fault: str
) -> None:
    store = SqliteStore(tmp_path / "s.db", vfs=disk.name)
    await store.txn([Put("a", b"")])
    writable = Writable(store, every=0.01)
    trying = asyncio.create_task(writable.run())
    try:
        setattr(disk, fault, True)
        async with asyncio.timeout(60):
            while not writable.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "takes no writes" in writable.trouble
        assert await store.get("a") is not None
        setattr(disk, fault, False)
        async with asyncio.timeout(60):
            while writable.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)
        await store.close()


@pytest.mark.server
@pytest.mark.slow
async def test_etcd_without_a_majority_takes_no_writes(etcd_cluster: EtcdCluster) -> None:
    store = EtcdStore(etcd_cluster.endpoints, uuid.uuid4().hex, EtcdSettings(attempt=0.5, patience=2.0))
    writable = Writable(store, patience=3.0)
    await writable.look()
    assert writable.trouble == ""
    lost = etcd_cluster.names[1:]
    for name in lost:
        etcd_cluster.pause(name)
    try:
        await writable.look()
        assert "takes no writes" in writable.trouble
    finally:
        for name in lost:
            await asyncio.to_thread(etcd_cluster.resume, name)
    async with asyncio.timeout(60):
        while writable.trouble:
            await writable.look()
    await store.close()


async def test_a_store_that_never_answers_takes_no_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(ttl: float) -> int:
        return await asyncio.Event().wait()

    monkeypatch.setattr(store, "grant", never)
    writable = Writable(store, patience=0.05)
    await writable.look()
    assert "no answer in 0.05 s" in writable.trouble
