"""Restoring into a store that several machines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import Refused
from strata.store.memory import MemoryStore
from strata.store.open import open_store
from strata.store.protocol import Put
from strata.store.restore import restore
from support.etcd_cluster import EtcdCluster

pytestmark = pytest.mark.server


async def test_a_backup_is_not_restored_under_a_living_controller(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:
    source = MemoryStore()
    await source.txn([Put("node/n1", b"one")])
    await source.backup(tmp_path / "b")
    url = etcd_cluster.url("restored")
    store = open_store(url)
    lease = await store.grant(60)
    await store.txn([Put("controller/c1", b"here", lease)])
    with pytest.raises(Refused, match="controllers work on this store: c1"):
        await restore(tmp_path / "b", url, overwrite=True)
    await store.revoke(lease)
    await restore(tmp_path / "b", url, overwrite=True)
    assert [entry.key for entry in (await store.range("")).entries] == ["node/n1"]
    await store.close()
    await source.close()
