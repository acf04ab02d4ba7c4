"""Creating, describing and deleting nodes: what is refused, what is recorded, what several writers can do."""

from __future__ import annotations

import asyncio

import pytest

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.store.audit import verify
from strata.store.memory import MemoryStore
from support.registry_support import Fleet, YieldingStore, a_fleet, spec


async def test_nodes_get_uids_that_are_never_used_again() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.delete_node("n2", "alice")
        await fleet.settled()
        await fleet.create("n2", "n3")
        assert [fleet.registry.node(name).uid for name in ("n1", "n2", "n3")] == [1, 3, 4]


async def test_each_bad_node_is_told_why_and_the_good_ones_are_made() -> None:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("old", location="x1c0s0b0n0", nid=7)], "alice")
        await fleet.settled()
        specs = [
            spec("good", location="X01c0s1b0n0"),
            spec("old"),
            spec("n/1"),
            spec("place", location="x1c0s0b0n0"),
            spec("nid", nid=7),
            spec("twin", location="x1c0s1b0n0"),
            spec("good"),
            spec("lost", location="y7"),
            spec("arch", architecture="pdp11"),
            spec("label", labels={"a b": "c"}),
            spec("secret", bmc="https://root:hunter2@10.0.0.1"),
            spec("nids", nid=8),
            spec("nids2", nid=8),
        ]
        results = await fleet.edits.create_nodes(specs, "alice")
        assert [result.node for result in results] == [each.name for each in specs]
        assert [r.status for r in results] == [201, 409, 400, 409, 409, 400, 400, 400, 400, 400, 400, 201, 400]
        said = {result.node: result.error for result in results}
        assert "x1c0s0b0n0 is that of old" in said["place"] and "NID 7 is that of old" in said["nid"]
        assert "also that of good" in said["twin"] and "also that of nids" in said["nids2"]
        assert "hunter2" not in said["secret"] and "password" in said["secret"]
        await fleet.settled()
        assert sorted(name for name in fleet.registry.names if name) == ["good", "nids", "old"]
        assert fleet.registry.node("good").location == "x1c0s1b0n0"


async def test_two_writers_never_give_one_place_to_two_nodes() -> None:
    store = YieldingStore()
    async with a_fleet(store=store) as one, a_fleet(store=store) as other:
        made = await asyncio.gather(
            *(
                fleet.edits.create_nodes([spec(f"{who}{i}", location=f"x{i}c0s0b0n0", nid=i)], who)
                for i in range(10)
                for who, fleet in (("a", one), ("b", other))
            )
        )
        await one.settled()
        assert sum(result.ok for results in made for result in results) == 10
        assert sorted(result.status for results in made for result in results) == [201] * 10 + [409] * 10
        assert len(set(one.registry.uids.tolist())) == 10
        assert (await verify(store)).ok


async def test_a_writer_whose_view_is_behind_waits_for_it_before_it_gives_out_a_place() -> None:
    store = YieldingStore()
    behind = Fleet(store)
    await behind.registry.load()
    async with a_fleet(store=store) as fleet:
        await fleet.edits.create_nodes([spec("n1", location="x1c0s0b0n0")], "alice")
        late = asyncio.create_task(behind.edits.create_nodes([spec("n2", location="x1c0s0b0n0")], "bob"))
        await fleet.settled()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not late.done()
        await behind.registry.load()
        [result] = await late
        assert result.status == 409 and "that of n1" in result.error


async def test_of_two_moves_to_one_place_and_of_two_replacements_one_wins() -> None:
    store = YieldingStore()
    async with a_fleet("n1", "n2", "n3", store=store) as one, a_fleet(store=store) as other:
        await other.settled()
        moves = await asyncio.gather(
            one.edits.replace_node("n1", spec("n1", nid=7), "alice"),
            other.edits.replace_node("n2", spec("n2", nid=7), "bob"),
            return_exceptions=True,
        )
        assert [type(each) for each in moves].count(Conflict) == 1
        seen = one.registry.modified("node/n3")
        replacements = await asyncio.gather(
            one.edits.replace_node("n3", spec("n3", role="login"), "alice", seen),
            other.edits.replace_node("n3", spec("n3", role="service"), "bob", seen),
            return_exceptions=True,
        )
        assert [type(each) for each in replacements].count(Conflict) == 1


async def test_more_nodes_than_one_transaction_takes_are_made_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "max_ops", 8)
    async with a_fleet() as fleet:
        revision = await fleet.store.revision()
        results = await fleet.edits.create_nodes([spec(f"n{i}") for i in range(23)], "alice")
        assert all(result.ok for result in results)
        assert await fleet.store.revision() - revision == 5
        await fleet.settled()
        assert sorted(fleet.registry.uids.tolist()) == list(range(1, 24))


async def test_a_description_is_replaced_only_by_who_has_seen_it() -> None:
    async with a_fleet("n1") as fleet:
        seen = fleet.registry.modified("node/n1")
        revision = await fleet.edits.replace_node("n1", spec("n1", role="login"), "bob", seen)
        with pytest.raises(Conflict) as caught:
            await fleet.edits.replace_node("n1", spec("n1", role="service"), "carol", seen)
        assert caught.value.revision == revision
        await fleet.settled()
        assert fleet.registry.node("n1").role == "login" and fleet.registry.node("n1").uid == 1
        assert await fleet.edits.replace_node("n1", spec("n1", role="login"), "dave") == revision, "no change, no write"


async def test_putting_a_node_that_is_not_there_makes_it_unless_it_had_to_be_there() -> None:
    async with a_fleet("n1") as fleet:
        await fleet.edits.replace_node("n2", spec("n2"), "alice", 0)
        await fleet.settled()
        assert fleet.registry.node("n2").uid == 2
        for name, expected in (("n2", 0), ("n3", 5)):
            with pytest.raises(Conflict):
                await fleet.edits.replace_node(name, spec(name), "alice", expected)
        with pytest.raises(BadRequest, match="keeps its name"):
            await fleet.edits.replace_node("n1", spec("n5"), "alice")


async def test_a_node_cannot_move_to_a_place_that_is_taken() -> None:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("n1", nid=1), spec("n2", nid=2)], "alice")
        await fleet.settled()
        with pytest.raises(Conflict, match="NID 1 is that of n1"):
            await fleet.edits.replace_node("n2", spec("n2", nid=1), "alice")
        await fleet.edits.replace_node("n1", spec("n1", nid=3), "alice")
        await fleet.settled()
        await fleet.edits.replace_node("n2", spec("n2", nid=1), "alice")


async def test_deleting_a_node_removes_all_that_was_said_about_it_in_one_transaction() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.put_group("g", fleet.at("n1", "n2"), "alice")
        await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, [], "alice")
        await fleet.edits.hold(fleet.at("n1"), "fan", "alice")
        await fleet.edits.freeze("node:n1", "fan", "alice")
        await fleet.settled()
        before = await fleet.store.revision()
        assert await fleet.edits.delete_node("n1", "bob") == before + 1
        await fleet.settled()
        left = {
            entry.key
            for entry in (await fleet.store.range("")).entries
            if not entry.key.startswith(("audit/", "transition/"))
        }
        assert left == {"node/n2", "group/g", "uid/next"}
        assert fleet.registry.groups["g"].members == ((2, 2),)
        with pytest.raises(NotFound):
            await fleet.edits.delete_node("n1", "bob")


async def test_every_write_has_its_author_in_the_audit_log() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.set_desires(fleet.at("n1", "n2"), {"power": "on"}, ["os"], "bob")
        await fleet.edits.delete_node("n1", "carol")
        records = await fleet.edits.ledger.entries(0)
        assert [(r.author, r.action, r.target) for r in records] == [
            ("alice", "node.create", "n[1-2]"),
            ("bob", "desire.set", "n[1-2]"),
            ("carol", "node.delete", "n1"),
        ]
        assert records[1].detail == {"count": 2, "set": {"power": ["on"]}, "unset": ["os"]}
