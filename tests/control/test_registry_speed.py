"""A hundred thousand nodes is a normal size. Limits, of the work and not of the time it takes here,
are several times what is needed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from registry_support import MODEL, a_fleet, spec

from strata.control.registry import Registry
from strata.store.audit import verify
from strata.store.sqlite import SqliteStore

NODES = 100_000


@pytest.mark.slow
async def test_a_whole_fleet_is_made_wanted_and_loaded_within_seconds(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    nodes = [
        spec(f"n{i:06d}", nid=i, location=f"x{i // 256}c{i // 32 % 8}s{i // 4 % 8}b{i // 2 % 2}n{i % 2}")
        for i in range(NODES)
    ]
    took: dict[str, float] = {}
    async with a_fleet(store=store) as fleet:
        begun = time.process_time()
        results = await fleet.edits.create_nodes(nodes, "alice")
        await fleet.settled()
        took["create"] = time.process_time() - begun
        assert all(result.ok for result in results) and len(fleet.registry) == NODES

        begun = time.process_time()
        everyone = fleet.registry.select("*")
        done = await fleet.edits.set_desires(everyone, {"power": "on", "image": "v1", "os": "up"}, [], "alice")
        await fleet.settled()
        took["set"] = time.process_time() - begun
        assert done.changed.all() and (fleet.registry.desires.goals("image").codes == 1).all()

        begun = time.process_time()
        fresh = Registry(store, MODEL)
        await fresh.load()
        assert len(fresh.location("cabinet").table) == 1 + -(-NODES // 256)
        took["load"] = time.process_time() - begun
        assert len(fresh) == NODES
        assert (await verify(store)).ok
    await store.close()
    limits = {"create": 12.0, "set": 4.0, "load": 6.0}
    assert all(took[what] < limit for what, limit in limits.items()), took
