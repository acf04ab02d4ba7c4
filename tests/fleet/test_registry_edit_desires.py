"""Setting desires and documents: conflicts, batches, differences."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.desires.documents import DesireDocument
from strata.store.memory import MemoryStore
from support.registry_support import YieldingStore, a_fleet, spec


def document(name: str, image: str = "v1", **more: object) -> DesireDocument:
    return DesireDocument(name=name, select="*", set={"image": (image,)}, **more)  # type: ignore[arg-type]


async def test_bad_desires_change_nothing() -> None:
    async with a_fleet("n1") as fleet:
        revision = await fleet.store.revision()
        for wanted, unset in (
            ({"power": "blue"}, []),
            ({"power": "on", "volts": "1"}, []),
            ({"power": "on"}, ["power"]),
            ({}, ["volts"]),
            ({}, []),
            ({"image": []}, []),
            ({"image": "unknown"}, []),
        ):
            with pytest.raises(BadRequest):
                await fleet.edits.set_desires(fleet.at("n1"), wanted, unset, "alice")
        assert await fleet.store.revision() == revision


async def test_what_nobody_knows_cannot_be_wanted() -> None:
    """A node would be taken down on the way to something that is not there."""

    def known(name: str) -> None:
        if name != "compute":
            raise NotFound("no such personality", where=name, hint="strata personality list")

    async with a_fleet("n1") as fleet:
        fleet.edits.known = {"image": known}
        revision = await fleet.store.revision()
        with pytest.raises(BadRequest, match="no such personality"):
            await fleet.edits.set_desires(fleet.at("n1"), {"image": ["compute", "nope"]}, [], "alice")
        with pytest.raises(BadRequest, match="no such personality"):
            await fleet.edits.put_document(document("d", image="nope"), "alice")
        assert await fleet.store.revision() == revision
        await fleet.edits.set_desires(fleet.at("n1"), {"image": "compute"}, [], "alice")


async def test_the_same_again_is_no_write() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, [], "alice")
        revision = await fleet.store.revision()
        done = await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, ["image"], "bob")
        assert not done.changed.any() and await fleet.store.revision() == revision
        done = await fleet.edits.set_desires(fleet.at("n1", "n2"), {"power": "on"}, [], "bob")
        assert done.changed.tolist() == [False, True]


async def test_two_writers_of_one_row_both_win_when_they_write_different_nodes_or_variables() -> None:
    store = YieldingStore()
    async with a_fleet("n1", "n2", store=store) as one, a_fleet(store=store) as other:
        await asyncio.gather(
            one.edits.set_desires(one.at("n1"), {"power": "on"}, [], "alice"),
            other.edits.set_desires(one.at("n2"), {"power": "off"}, [], "bob"),
            one.edits.set_desires(one.at("n1"), {"image": "v1"}, [], "carol"),
            other.edits.set_desires(one.at("n1"), {"os": "up"}, [], "dave"),
        )
        await one.settled()
        assert {d.variable: (d.values, d.author) for d in one.registry.desires.of(one.registry.index_of("n1"))} == {
            "power": (("on",), "alice"),
            "image": (("v1",), "carol"),
            "os": (("up",), "dave"),
        }
        assert one.goal("power", "n2") == ("off",)


async def test_who_has_not_seen_the_last_word_on_the_same_field_is_told_and_the_others_go_on() -> None:
    async with a_fleet("n1", "n2") as fleet:
        seen = await fleet.store.revision()
        await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, [], "alice")
        done = await fleet.edits.set_desires(fleet.at("n1", "n2"), {"power": "off"}, [], "bob", if_match=seen)
        assert done.changed.tolist() == [False, True]
        assert list(done.conflicts) == [0] and "power was changed" in done.conflicts[0]
        await fleet.settled()
        assert fleet.goal("power", "n1") == ("on",) and fleet.goal("power", "n2") == ("off",)
        done = await fleet.edits.set_desires(fleet.at("n1"), {"image": "v1"}, [], "bob", if_match=seen)
        assert done.changed.all() and not done.conflicts, "another field of the same row is no conflict"


async def test_a_change_that_is_done_again_after_a_crash_does_not_quarrel_with_itself() -> None:
    async with a_fleet("n1", "n2") as fleet:
        seen = await fleet.store.revision()
        for changed in ([True, True], [False, False]):
            done = await fleet.edits.set_desires(fleet.at("n1", "n2"), {"power": "on"}, ["os"], "alice", if_match=seen)
            assert done.changed.tolist() == changed and not done.conflicts


async def test_a_node_that_went_meanwhile_is_told_and_the_others_are_set() -> None:
    async with a_fleet("n1", "n2") as fleet:
        nodes = fleet.at("n1", "n2")
        await fleet.edits.delete_node("n1", "alice")
        await fleet.settled()
        done = await fleet.edits.set_desires(nodes, {"power": "on"}, [], "bob")
        assert done.changed.tolist() == [False, True] and "no such node" in done.conflicts[0]


@pytest.mark.slow
async def test_a_fleet_over_many_rows_is_set_in_bounded_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "max_ops", 7)
    monkeypatch.setattr("strata.fleet.registry.editor.BATCH_BYTES", 40_000)
    store = MemoryStore()
    async with a_fleet(store=store) as fleet:
        monkeypatch.setattr(MemoryStore, "max_ops", 10_000)
        await fleet.edits.create_nodes([spec(f"n{i}") for i in range(20_000)], "alice")
        await fleet.settled()
        monkeypatch.setattr(MemoryStore, "max_ops", 7)
        revision = await store.revision()
        done = await fleet.edits.set_desires(fleet.registry.select("*"), {"power": "on"}, [], "alice")
        assert done.changed.all()
        await fleet.settled()
        assert await store.revision() - revision == 7, "21 rows of 12 kB, three to a transaction"
        assert (fleet.registry.desires.goals("power").codes == 1).all()


async def test_applying_documents_tells_what_changed_and_prunes_only_when_asked() -> None:
    async with a_fleet("n1", "n2") as fleet:
        edits = fleet.edits
        await edits.put_document(document("a"), "alice")
        await edits.put_document(document("b"), "alice")
        await edits.put_document(document("c"), "alice")
        await fleet.settled()
        wanted = [document("a"), document("b", "v2", priority=3), document("d")]
        revision = await fleet.store.revision()
        dry = await edits.apply(wanted, "bob", prune=True, dry_run=True)
        assert await fleet.store.revision() == revision and dry.dry_run
        done = await edits.apply(wanted, "bob", prune=True)
        assert done.changes == dry.changes
        assert [(c.name, c.action, c.nodes) for c in done.changes] == [
            ("a", "unchanged", 2),
            ("b", "changed", 2),
            ("d", "created", 2),
            ("c", "deleted", 2),
        ]
        assert done.changes[1].detail == "priority 0 → 3; image v1 → v2"
        assert done.revision == revision + 1, "all in one transaction"
        await fleet.settled()
        assert sorted(fleet.registry.desires.documents) == ["a", "b", "d"]
        assert fleet.registry.desires.documents["a"].document.author == "alice", "an unchanged one keeps its author"
        again = await edits.apply([document("a")], "bob")
        assert {c.action for c in again.changes} == {"unchanged"} and await fleet.store.revision() == done.revision


async def test_a_document_given_twice_is_refused() -> None:
    async with a_fleet("n1") as fleet:
        with pytest.raises(BadRequest, match="twice"):
            await fleet.edits.apply([document("a"), document("a", "v2")], "alice")


async def test_a_document_is_replaced_and_deleted_only_by_who_has_seen_it() -> None:
    async with a_fleet("n1") as fleet:
        first = await fleet.edits.put_document(document("a"), "alice", 0)
        second = await fleet.edits.put_document(document("a", "v2"), "bob", first)
        for attempt in (
            fleet.edits.put_document(document("a", "v3"), "carol", first),
            fleet.edits.delete_document("a", "carol", first),
        ):
            with pytest.raises(Conflict) as caught:
                await attempt
            assert caught.value.revision == second
        await fleet.edits.delete_document("a", "carol", second)
        with pytest.raises(NotFound):
            await fleet.edits.delete_document("a", "carol")
        await fleet.settled()
        assert not np.any(fleet.registry.desires.goals("image").codes)
