"""What each node of a large fleet costs, in calls. Limits are a few times what is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.fleet.registry.registry import Registry
from strata.store.audit import verify
from strata.store.sqlite.store import SqliteStore
from support.registry_support import MODEL, a_fleet, spec
from support.work import counted

NODES = 20_000


@pytest.mark.slow
async def test_a_whole_fleet_is_made_wanted_and_loaded_at_a_bounded_cost_for_each(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    nodes = [
        spec(f"n{i:06d}", nid=i, location=f"x{i // 256}c{i // 32 % 8}s{i // 4 % 8}b{i // 2 % 2}n{i % 2}")
        for i in range(NODES)
    ]
    async with a_fleet(store=store) as fleet:
        with counted() as made:
            results = await fleet.edits.create_nodes(nodes, "alice")
            await fleet.settled()
        assert all(result.ok for result in results) and len(fleet.registry) == NODES

        with counted() as wanted:
            everyone = fleet.registry.select("*")
            done = await fleet.edits.set_desires(everyone, {"power": "on", "image": "v1", "os": "up"}, [], "alice")
            await fleet.settled()
        assert done.changed.all() and (fleet.registry.desires.goals("image").codes == 1).all()

        with counted() as loaded:
            fresh = Registry(store, MODEL)
            await fresh.load()
            assert len(fresh.location("cabinet").table) == 1 + -(-NODES // 256)
        assert len(fresh) == NODES
        assert (await verify(store)).ok
    await store.close()
    assert made.calls < 400 * NODES
    assert wanted.calls < 60 * NODES
    assert loaded.calls < 150 * NODES
