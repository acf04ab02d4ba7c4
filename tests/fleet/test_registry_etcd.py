"""The same edits through a real etcd, whose transactions are small: 128 operations, a megabyte and a half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strata.fleet.desires.documents import DesireDocument
from strata.fleet.registry.registry import Registry
from strata.store.audit import verify
from strata.store.open import open_store
from support.registry_support import MODEL, a_fleet, spec

if TYPE_CHECKING:
    from support.etcd_cluster import EtcdCluster


@pytest.mark.server
@pytest.mark.slow
async def test_a_fleet_fits_through_small_transactions(etcd_cluster: EtcdCluster) -> None:
    store = open_store(etcd_cluster.url("registry"))
    async with a_fleet(store=store) as fleet:
        results = await fleet.edits.create_nodes([spec(f"n{i:04d}", nid=i) for i in range(2500)], "alice")
        assert all(result.ok for result in results)
        await fleet.settled()
        everyone = fleet.registry.select("*")
        done = await fleet.edits.set_desires(everyone, {"power": "on", "image": "v1", "os": "up"}, [], "alice")
        assert done.changed.all()
        assert len((await fleet.edits.hold(everyone[:300], "fans", "alice")).nodes) == 300
        await fleet.edits.put_group("g", everyone[::2], "alice")
        await fleet.settled()
        documents = [DesireDocument(name=f"d{i}", select="@g", set={"os": ("down",)}, priority=i) for i in range(150)]
        await fleet.edits.apply(documents, "alice")
        assert len((await fleet.edits.release(everyone[:200], "bob")).nodes) == 200
        await fleet.edits.delete_node("n0250", "bob")
        await fleet.settled()
        fresh = Registry(store, MODEL)
        await fresh.load()
        for registry in (fleet.registry, fresh):
            assert len(registry) == 2499 and registry.brakes.held.sum() == 99
            assert len(registry.desires.documents) == 150
            assert (registry.desires.goals("power").codes[registry.alive] == 1).all()
        assert (await verify(store)).ok
    await store.close()
