"""The registry as a view of the store: loading, following, and what it tells of each change."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

from strata.core.errors import NotFound, Unavailable
from strata.core.node import Group, Node
from strata.fleet.desires import overrides as rows
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.registry.registry import Registry
from strata.store.memory import MemoryStore
from strata.store.protocol import Event
from support.registry_support import MODEL, Fleet, a_fleet, spec


def picture(registry: Registry) -> dict[str, object]:
    """Everything that the registry shows, by name rather than by index."""
    by_name = {name: registry.index_of(name) for name in registry.names if name}
    return {
        name: (
            registry.node(name),
            bool(registry.brakes.held[at]),
            bool(registry.brakes.frozen[at]),
            registry.groups.of(at),
            registry.desires.of(registry.index_of(name)),
            [registry.desires.goals(v).table[registry.desires.goals(v).codes[at]] for v in MODEL.variables],
            registry.location("cabinet").get(at),
            registry.label("rack").get(at),
        )
        for name, at in sorted(by_name.items())
    }


def came(name: str, uid: int, revision: int) -> Event:
    """A node that another controller made."""
    return Event(revision, f"node/{name}", msgspec.msgpack.encode(Node(name=name, uid=uid)))


async def busy(fleet: Fleet) -> None:
    """A bit of everything."""
    nodes = [spec(f"n{i}", location=f"x{1000 + i // 4}c0s{i % 4}b0n0", labels={"rack": str(i // 4)}) for i in range(8)]
    await fleet.edits.create_nodes(nodes, "alice")
    await fleet.settled()
    await fleet.edits.put_group("a", fleet.at("n1", "n2", "n5"), "alice")
    await fleet.settled()
    document = DesireDocument(name="all", select="@a,n7", set={"power": ("on",), "image": ("v1",)})
    await fleet.edits.put_document(document, "bob")
    await fleet.edits.set_desires(fleet.at("n2", "n3"), {"image": "v2"}, [], "carol")
    await fleet.edits.hold(fleet.at("n4"), "fan", "dave")
    await fleet.edits.freeze("group:a", "outage", "erin")
    await fleet.edits.delete_node("n5", "alice")
    await fleet.edits.replace_node("n6", spec("n6", location="x2000c0s0b0n0", labels={"rack": "9"}), "alice")
    await fleet.edits.create_nodes([spec("n8", labels={"rack": "0"})], "alice")
    await fleet.settled()


async def test_following_shows_the_same_as_listing_afresh() -> None:
    async with a_fleet() as fleet:
        fleet.registry.label("rack"), fleet.registry.location("cabinet")
        await busy(fleet)
        fresh = Registry(fleet.store, MODEL)
        await fresh.load()
        assert picture(fleet.registry) == picture(fresh)
        assert len(picture(fresh)) == len(fresh) == 8
        assert fresh.revision == fleet.registry.revision == await fleet.store.revision()


async def test_loading_again_tells_only_what_a_lost_watch_would_have_told() -> None:
    async with a_fleet("n1", "n2", "n3") as fleet:
        behind = Registry(fleet.store, MODEL)
        await behind.load()
        await fleet.edits.delete_node("n2", "alice")
        await fleet.edits.set_desires(fleet.at("n3"), {"power": "on"}, [], "alice")
        gone, n3 = behind.index_of("n2"), behind.index_of("n3")
        changes = await behind.load()
        assert changes.removed.tolist() == [gone]
        assert {v: nodes.tolist() for v, nodes in changes.goals_changed.items()} == {"power": [n3]}
        assert not len(changes.added) and not len(changes.nodes_changed)
        assert not await behind.load()


async def test_a_node_that_comes_is_told_with_its_goals_hold_and_freeze() -> None:
    async with a_fleet() as fleet:
        await fleet.edits.put_document(DesireDocument(name="all", select="*", set={"power": ("on",)}), "alice")
        await fleet.create("n1")
        await fleet.edits.hold(fleet.at("n1"), "fan", "alice")
        await fleet.edits.freeze("fleet", "outage", "alice")
        changes = await Registry(fleet.store, MODEL).load()
        assert changes.added.tolist() == [0]
        assert changes.goals_changed["power"].tolist() == [0]
        assert changes.holds_changed.tolist() == changes.freezes_changed.tolist() == [0]


async def test_a_freed_index_is_given_out_only_in_a_later_batch() -> None:
    async with a_fleet("n1", "n2") as fleet:
        old = fleet.registry.index_of("n1")
        revision = fleet.registry.revision
        first = fleet.registry.apply([Event(revision + 1, "node/n1", None), came("n9", 99, revision + 1)])
        assert first.removed.tolist() == [old]
        assert old not in first.added.tolist()
        second = fleet.registry.apply([came("n7", 100, revision + 2)])
        assert second.added.tolist() == [old]


async def test_a_name_that_comes_back_is_another_node() -> None:
    async with a_fleet("n1") as fleet:
        await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, [], "alice")
        await fleet.edits.hold(fleet.at("n1"), "fan", "alice")
        behind = Registry(fleet.store, MODEL)
        await behind.load()
        first = int(behind.uids[behind.index_of("n1")])
        await fleet.edits.delete_node("n1", "alice")
        await fleet.settled()
        await fleet.create("n1")
        changes = await behind.load()
        assert len(changes.removed) == len(changes.added) == 1
        assert changes.removed.tolist() != changes.added.tolist()
        at = behind.index_of("n1")
        assert behind.uids[at] > first
        assert not behind.brakes.held[at] and behind.desires.of(at) == []


async def test_who_came_and_went_within_one_batch_was_never_here() -> None:
    async with a_fleet("n1") as fleet:
        revision = fleet.registry.revision + 1
        changes = fleet.registry.apply([came("n9", 99, revision), Event(revision + 1, "node/n9", None)])
        assert not changes
        assert fleet.registry.find("n9") == -1


async def test_a_changed_description_is_told_and_moves_the_node_between_documents() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.put_document(DesireDocument(name="r", select="label:rack=7", set={"power": ("on",)}), "a")
        await fleet.edits.replace_node("n1", spec("n1", labels={"rack": "7"}), "alice")
        await fleet.settled()
        assert fleet.goal("power", "n1") == ("on",) and fleet.goal("power", "n2") == ()
        assert fleet.names(fleet.told[-1].nodes_changed) == ["n1"]
        assert fleet.names(fleet.told[-1].goals_changed["power"]) == ["n1"]


async def test_a_member_or_override_that_is_known_before_its_node_counts_when_the_node_comes() -> None:
    async with a_fleet("n1") as fleet:
        registry = fleet.registry
        await fleet.edits.put_document(DesireDocument(name="d", select="@g", set={"power": ("on",)}), "alice")
        await fleet.settled()
        revision = registry.revision
        group = Group(name="g", members=((99, 99),))
        row = rows.edit({}, 0, np.array([99]), {"image": ("v1",)}, "alice").row
        registry.apply([Event(revision + 1, "group/g", msgspec.msgpack.encode(group))])
        registry.apply([Event(revision + 2, "desire/node/000000", rows.encode(row))])
        assert not registry.groups.mask("g").any()
        changes = registry.apply([came("n9", 99, revision + 3)])
        at = registry.index_of("n9")
        assert registry.groups.mask("g")[at] and registry.groups.of(at) == ("g",)
        assert fleet.goal("power", "n9") == ("on",) and fleet.goal("image", "n9") == ("v1",)
        assert set(changes.goals_changed) == {"power", "image"}


async def test_keys_of_others_change_nothing_but_the_revision() -> None:
    async with a_fleet("n1") as fleet:
        revision = fleet.registry.revision + 5
        changes = fleet.registry.apply([Event(revision, "intent/0/1", b"junk"), Event(revision, "job/1", b"junk")])
        assert not changes
        assert changes.revision == fleet.registry.revision == revision


async def test_waiting_for_a_revision_ends_when_it_is_there_or_says_that_it_is_not() -> None:
    registry = Registry(MemoryStore(), MODEL)
    waiting = asyncio.create_task(registry.reached(3))
    await asyncio.sleep(0)
    registry.apply([Event(2, "job/1", b"")])
    await asyncio.sleep(0)
    assert not waiting.done()
    registry.apply([Event(3, "job/1", b"")])
    await waiting
    with pytest.raises(Unavailable, match="does not reach 9"):
        await registry.reached(9, timeout=0.01)
    assert not registry._waiters


async def test_indices_are_found_by_uid_also_when_some_are_gone() -> None:
    async with a_fleet("n1", "n2", "n3") as fleet:
        uids = fleet.registry.uids.copy()
        await fleet.edits.delete_node("n2", "alice")
        await fleet.settled()
        asked = np.array([uids[2], uids[1], uids[0], 10**12, -1])
        assert fleet.registry.indices_of(asked).tolist() == [2, -1, 0, -1, -1]


async def test_a_place_is_known_at_every_level_and_by_every_name_of_the_level() -> None:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("n1", location="X1001C2S03b0n1"), spec("n2")], "alice")
        await fleet.settled()
        at = fleet.registry.index_of("n1")
        levels = {
            kind: fleet.registry.location(kind).get(at) for kind in ("cabinet", "Chassis", "slot", "system", "pdu")
        }
        assert levels == {"cabinet": "x1001", "Chassis": "x1001c2", "slot": "x1001c2s3", "system": "s0", "pdu": ""}
        assert fleet.registry.location("cabinet").get(fleet.registry.index_of("n2")) == ""


async def test_an_unknown_node_is_named_and_what_may_be_meant_is_offered() -> None:
    async with a_fleet("n0042") as fleet:
        with pytest.raises(NotFound, match=r"n42.*did you mean n0042"):
            fleet.registry.index_of("n42")
