"""What files say, made so: all of it or nothing, and a dry run finds what the real one would."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Conflict, StrataError
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.desires.records import ApplyReport
from strata.fleet.groups.records import GroupStatement
from strata.fleet.nodes.records import NodeStatement
from support.registry_support import Fleet, a_fleet, spec


def nodes(*said: dict[str, Any]) -> list[NodeStatement]:
    return msgspec.convert(list(said), list[NodeStatement])


def groups(*said: dict[str, Any]) -> list[GroupStatement]:
    return msgspec.convert(list(said), list[GroupStatement])


def document(name: str, select: str, **wanted: str) -> DesireDocument:
    return DesireDocument(name=name, select=select, set={key: (value,) for key, value in wanted.items()})


def actions(report: ApplyReport) -> list[tuple[str, str, str, int]]:
    return [(change.kind, change.name, change.action, change.nodes) for change in report.changes]


async def everything(fleet: Fleet) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await fleet.store.range("")).entries}


SITE: dict[str, Any] = {
    "nodes": nodes({"name": "n1", "labels": {"rack": "7"}}, {"name": "n2", "location": "x1c0s0b0n0"}, {"name": "old"}),
    "groups": groups({"name": "some", "members": "n[1-2]"}, {"name": "rack", "members": "n1,old"}),
}


async def test_new_nodes_are_in_the_groups_and_documents_of_the_same_request_in_one_transaction() -> None:
    async with a_fleet("old") as fleet:
        wanted = [document("d", "@rack", power="on"), document("e", "location:x1", power="off")]
        dry = await fleet.edits.apply(wanted, "alice", **SITE, dry_run=True)
        before = await fleet.store.revision()
        done = await fleet.edits.apply(wanted, "alice", **SITE)
        assert done.revision == before + 1, "all of it or nothing"
        await fleet.settled()
        assert actions(dry) == actions(done)
        assert actions(done) == [
            ("node", "n[1-2]", "created", 2),
            ("node", "", "unchanged", 1),
            ("group", "some", "created", 2),
            ("group", "rack", "created", 2),
            ("desire", "d", "created", 2),
            ("desire", "e", "created", 1),
        ]
        assert fleet.goal("power", "n1") == fleet.goal("power", "old") == ("on",)
        assert fleet.goal("power", "n2") == ("off",)
        assert fleet.names(fleet.registry.select("@some")) == ["n1", "n2"]
        again = await fleet.edits.apply(wanted, "alice", **SITE)
        assert {change.action for change in again.changes} == {"unchanged"}
        assert await fleet.store.revision() == done.revision


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("wrong", "where", "words"),
    [
        ({"nodes": nodes({"name": "n1"}, {"name": "n9", "location": "x1000"}, {"name": "n1"})}, "node n1", "twice"),
        ({"nodes": nodes({"name": "n1"}, {"name": "n9", "location": "nowhere"})}, "node n9: ", ""),
        ({"nodes": nodes({"name": "n1"}, {"name": "n9", "location": "x5c0s0b0n0"})}, "node n9", "that of old"),
        ({"nodes": nodes({"name": "n1", "nid": 3}, {"name": "n9", "nid": 3})}, "node n9", "also that of n1"),
        ({"groups": groups({"name": "a", "members": "n1,n8"}), "nodes": nodes({"name": "n1"})}, "group a: ", "n8"),
        ({"groups": groups({"name": "a", "members": "@none"})}, "group a: ", "none"),
        ({"groups": groups({"name": "a"}, {"name": "a"})}, "group a", "twice"),
        ({"documents": [document("x", "n1", power="blue")], **SITE}, "document 'x': power", "off, on"),
        ({"documents": [document("x", "state:ready", power="on")], **SITE}, "document 'x'", "by state"),
    ],
)
async def test_whatever_is_wrong_changes_nothing_and_says_where(
    wrong: dict[str, Any], where: str, words: str, dry_run: bool
) -> None:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("old", location="x5c0s0b0n0")], "alice")
        await fleet.settled()
        before = await everything(fleet)
        good = [document("good", "*", power="on")]
        with pytest.raises(StrataError) as refused:
            await fleet.edits.apply(
                [*good, *wrong.get("documents", [])],
                "alice",
                nodes=wrong.get("nodes", ()),
                groups=wrong.get("groups", ()),
                dry_run=dry_run,
            )
        assert isinstance(refused.value, BadRequest | Conflict)
        assert refused.value.where.startswith(where)
        assert words in f"{refused.value.detail} {refused.value.where}"
        assert await everything(fleet) == before


async def test_a_document_about_a_group_that_is_not_there_is_told_so() -> None:
    async with a_fleet("n1") as fleet:
        wanted = [document("d", "@gpu,@made", power="on"), document("e", "@*", power="on")]
        made = groups({"name": "made", "members": "n1"})
        report = await fleet.edits.apply(wanted, "alice", groups=made, dry_run=True)
        assert {change.name: change.missing for change in report.changes} == {"made": (), "d": ("gpu",), "e": ()}


async def test_what_is_not_said_of_a_node_stays_and_addresses_that_are_left_to_us_are_no_difference() -> None:
    async with a_fleet() as fleet:
        first = nodes({"name": "n1", "nid": 7, "bmc": "10.1.0.7", "interfaces": [{"mac": "52:54:00:00:00:0A"}]})
        fleet.edits.addresses = lambda _: (
            lambda interfaces: tuple(
                msgspec.structs.replace(one, address=one.address or "10.77.0.10") for one in interfaces
            )
        )
        await fleet.edits.apply([], "alice", nodes=first)
        await fleet.settled()
        assert fleet.registry.node_at(0).interfaces[0].address == "10.77.0.10"
        assert actions(await fleet.edits.apply([], "alice", nodes=first)) == [("node", "", "unchanged", 1)]
        await fleet.edits.apply([], "alice", nodes=nodes({"name": "n1", "labels": {"rack": "7"}}))
        await fleet.settled()
        node = fleet.registry.node_at(0)
        assert (node.nid, node.bmc, node.labels) == (7, "10.1.0.7", {"rack": "7"})


async def test_members_of_a_group_that_a_file_does_not_name_stay() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.put_group("g", fleet.at("n1"), "alice")
        await fleet.settled()
        await fleet.edits.apply([], "alice", groups=groups({"name": "g", "description": "with GPUs"}))
        await fleet.settled()
        assert fleet.names(fleet.registry.select("@g")) == ["n1"]
        assert fleet.registry.groups["g"].description == "with GPUs"


async def test_nodes_may_swap_places_in_one_request() -> None:
    async with a_fleet() as fleet:
        await fleet.edits.apply([], "alice", nodes=nodes({"name": "n1", "nid": 1}, {"name": "n2", "nid": 2}))
        await fleet.settled()
        await fleet.edits.apply([], "alice", nodes=nodes({"name": "n1", "nid": 2}, {"name": "n2", "nid": 1}))
        await fleet.settled()
        assert [fleet.registry.node(name).nid for name in ("n1", "n2")] == [2, 1]
