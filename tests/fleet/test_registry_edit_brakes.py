"""Groups, holds and freezes: who is in, who is out of automation, and that no brake comes off unseen."""

from __future__ import annotations

import asyncio

import pytest

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from support.registry_support import YieldingStore, a_fleet


async def test_members_are_added_then_removed() -> None:
    async with a_fleet("n1", "n2", "n3") as fleet:
        await fleet.edits.put_group("g", fleet.at("n1"), "alice", description="racks of the east")
        await fleet.edits.change_members("g", "alice", add=fleet.at("n2", "n3"), remove=fleet.at("n1", "n3"))
        await fleet.settled()
        assert fleet.names(fleet.registry.select("@g")) == ["n2"]
        assert fleet.told[-1].groups_changed
        await fleet.edits.put_group("g", None, "alice", description="kept")
        await fleet.settled()
        assert fleet.registry.groups["g"].members == ((2, 2),)
        assert fleet.registry.groups["g"].description == "kept"


async def test_two_writers_of_one_group_lose_nobody() -> None:
    store = YieldingStore()
    names = [f"n{i}" for i in range(12)]
    async with a_fleet(*names, store=store) as one, a_fleet(store=store) as other:
        await one.edits.put_group("g", one.at(), "alice")
        await asyncio.gather(
            *(
                fleet.edits.change_members("g", "bob", add=one.at(name))
                for name, fleet in zip(names, [one, other] * 6, strict=True)
            )
        )
        await one.settled()
        assert one.names(one.registry.select("@g")) == sorted(names)


async def test_a_group_must_be_there_be_named_well_and_be_as_it_was_seen() -> None:
    async with a_fleet("n1") as fleet:
        with pytest.raises(NotFound):
            await fleet.edits.change_members("g", "alice", add=fleet.at("n1"))
        with pytest.raises(NotFound):
            await fleet.edits.delete_group("g", "alice")
        with pytest.raises(BadRequest):
            await fleet.edits.put_group("a/b", fleet.at("n1"), "alice")
        revision = await fleet.edits.put_group("g", fleet.at("n1"), "alice", expected=0)
        with pytest.raises(Conflict):
            await fleet.edits.put_group("g", fleet.at(), "alice", expected=0)
        await fleet.edits.delete_group("g", "alice", revision)
        await fleet.settled()
        assert not fleet.registry.groups


async def test_a_frozen_group_is_not_deleted_under_the_brake() -> None:
    async with a_fleet("n1") as fleet:
        await fleet.edits.put_group("g", fleet.at("n1"), "alice")
        await fleet.settled()
        await fleet.edits.freeze("group:g", "outage", "alice")
        with pytest.raises(Refused, match="thaw"):
            await fleet.edits.delete_group("g", "alice")
        await fleet.edits.thaw("group:g", "alice")
        await fleet.edits.delete_group("g", "alice")


async def test_a_hold_keeps_its_first_author_until_it_is_released() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.hold(fleet.at("n1"), "fan", "alice")
        done = await fleet.edits.hold(fleet.at("n1", "n2"), "disk", "bob")
        assert fleet.names(done.nodes) == ["n2"]
        await fleet.settled()
        assert {name: hold.author for name, hold in fleet.registry.brakes.holds.items()} == {"n1": "alice", "n2": "bob"}
        assert fleet.registry.brakes.held.tolist() == [True, True]
        done = await fleet.edits.release(fleet.at("n1"), "carol")
        assert fleet.names(done.nodes) == ["n1"]
        await fleet.settled()
        assert fleet.registry.brakes.held.tolist() == [False, True]
        assert fleet.names(fleet.told[-1].holds_changed) == ["n1"]
        assert not len((await fleet.edits.release(fleet.at("n1"), "carol")).nodes)


async def test_a_hold_that_was_set_anew_is_not_released_by_who_saw_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.hold(fleet.at("n1", "n2"), "fan", "alice")
        commit = fleet.edits.ledger.commit
        raced = False

        async def another_is_faster(*arguments: object) -> int:
            nonlocal raced
            if not raced:
                raced = True
                await fleet.edits.release(fleet.at("n1"), "bob")
                await fleet.edits.hold(fleet.at("n1"), "smoke!", "bob")
            return await commit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(fleet.edits.ledger, "commit", another_is_faster)
        done = await fleet.edits.release(fleet.at("n1", "n2"), "carol")
        assert fleet.names(done.nodes) == ["n2"]
        await fleet.settled()
        assert fleet.registry.brakes.holds["n1"].reason == "smoke!"


@pytest.mark.parametrize("scope", ["", "rack:7", "group:", "node:n9", "group:g"])
async def test_only_what_exists_can_be_frozen(scope: str) -> None:
    async with a_fleet("n1") as fleet:
        with pytest.raises(BadRequest):
            await fleet.edits.freeze(scope, "outage", "alice")


async def test_a_brake_without_a_reason_is_refused() -> None:
    async with a_fleet("n1") as fleet:
        for reason in ("", "  ", "x" * 501, "a\x1b[2Jb"):
            with pytest.raises(BadRequest):
                await fleet.edits.freeze("fleet", reason, "alice")
            with pytest.raises(BadRequest):
                await fleet.edits.hold(fleet.at("n1"), reason, "alice")


async def test_freezes_cover_their_scope_and_members_that_come_later() -> None:
    async with a_fleet("n1", "n2", "n3") as fleet:
        frozen = lambda: fleet.names(fleet.registry.brakes.frozen.nonzero()[0])  # noqa: E731
        await fleet.edits.put_group("g", fleet.at("n1"), "alice")
        await fleet.settled()
        await fleet.edits.freeze("group:g", "outage", "alice")
        await fleet.edits.freeze("node:n3", "outage", "alice")
        await fleet.settled()
        assert frozen() == ["n1", "n3"]
        await fleet.edits.change_members("g", "alice", add=fleet.at("n2"), remove=fleet.at("n1"))
        await fleet.settled()
        assert frozen() == ["n2", "n3"]
        assert fleet.names(fleet.told[-1].freezes_changed) == ["n1", "n2"]
        assert [fleet.registry.brakes.frozen_by(i) for i in fleet.at("n1", "n2", "n3")] == ["", "group:g", "node:n3"]
        await fleet.edits.freeze("fleet", "storm", "alice")
        await fleet.settled()
        await fleet.create("n4")
        assert frozen() == ["n1", "n2", "n3", "n4"]
        await fleet.edits.thaw("fleet", "alice")
        await fleet.settled()
        assert frozen() == ["n2", "n3"]
        with pytest.raises(NotFound):
            await fleet.edits.thaw("fleet", "alice")
