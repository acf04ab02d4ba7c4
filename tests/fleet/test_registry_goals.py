"""Which desire rules: documents by priority and age, overrides over all; the same as a naive reading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.registry.registry import Registry
from support.registry_support import MODEL, Fleet, a_fleet, spec

NAMES = [f"n{i}" for i in range(4)]
VARIABLES = list(MODEL.variables)

names = st.sets(st.sampled_from(NAMES), min_size=1)
wanted = st.sampled_from(
    [{"power": "on"}, {"power": "off"}, {"image": "v1"}, {"power": "on", "image": "v2", "os": "up"}]
)
selects = st.one_of(
    st.just("*"),
    names.map(lambda some: ",".join(sorted(some))),
    st.sampled_from(["@g", "*!@g", "@g&@h", "label:rack=1", "!label:rack=1", "n9,n1", "@missing"]),
)
steps = st.one_of(
    st.tuples(st.just("doc"), st.sampled_from("abc"), selects, wanted, st.integers(-1, 1)),
    st.tuples(st.just("undoc"), st.sampled_from("abc")),
    st.tuples(st.just("set"), names, wanted),
    st.tuples(st.just("unset"), names, st.sampled_from(VARIABLES)),
    st.tuples(st.just("group"), st.sampled_from("gh"), names),
    st.tuples(st.just("label"), st.sampled_from(NAMES), st.sampled_from("12")),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("create"), st.sampled_from(NAMES)),
)

START = [("create", "n0"), ("create", "n1"), ("group", "g", {"n0"}), ("doc", "b", "@g", {"power": "off"}, 0)]


class Naive:
    """The rules, read off the page and done one node at a time."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.docs: dict[str, tuple[int, int, str, Mapping[str, str], str]] = {}
        self.own: dict[tuple[str, str], tuple[int, str]] = {}
        self.groups: dict[str, set[str]] = {}
        self.turn = 0

    def selected(self, select: str, name: str) -> bool:
        g, h = (name in self.groups.get(group, ()) for group in "gh")
        rack = self.nodes[name] == "1"
        rules = {"*": True, "@g": g, "@h": h, "*!@g": not g, "@g&@h": g and h, "@missing": False}
        rules |= {"label:rack=1": rack, "!label:rack=1": not rack}
        return rules[select] if select in rules else name in select.split(",")

    def goal(self, name: str, variable: str) -> str | None:
        said = [doc[3] for doc in sorted(self.docs.values()) if self.selected(doc[4], name)]
        own = {wanted: said for (node, wanted), said in self.own.items() if node == name}
        power = next((wanted["power"] for wanted in reversed(said) if "power" in wanted), None)
        if power == "off" and "power" not in own and variable != "power":
            return None  # a document wants it off, and nobody since has spoken of its power
        for turn in sorted({turn for turn, _ in own.values()}):
            said.append({wanted: value for wanted, (when, value) in own.items() if when == turn})
        goal = None
        for wanted in said:
            # Without power there is neither OS nor image: who wants the power off wants nothing of them.
            goal = wanted.get(variable, None if wanted.get("power") == "off" and variable != "power" else goal)
        return goal


async def play(fleet: Fleet, naive: Naive, step: tuple) -> None:
    naive.turn += 1
    kind, *rest = step
    edits = fleet.edits
    alive = [name for name in rest[0] if name in naive.nodes] if kind in ("set", "unset") else []
    if kind == "doc":
        name, select, want, priority = rest
        document = DesireDocument(name=name, select=select, set={k: (v,) for k, v in want.items()}, priority=priority)
        before = await fleet.store.revision()
        await edits.put_document(document, "alice")
        if await fleet.store.revision() > before:  # writing the same again is not a new desire
            naive.docs[name] = (priority, naive.turn, name, want, select)
    elif kind == "undoc" and rest[0] in naive.docs:
        del naive.docs[rest[0]]
        await edits.delete_document(rest[0], "alice")
    elif kind == "set" and alive:
        await edits.set_desires(fleet.at(*alive), rest[1], [], "alice")
        naive.own |= {(name, variable): (naive.turn, v) for name in alive for variable, v in rest[1].items()}
    elif kind == "unset" and alive:
        await edits.set_desires(fleet.at(*alive), {}, [rest[1]], "alice")
        for name in alive:
            naive.own.pop((name, rest[1]), None)
    elif kind == "group":
        members = [name for name in rest[1] if name in naive.nodes]
        await edits.put_group(rest[0], fleet.at(*members), "alice")
        naive.groups[rest[0]] = set(members)
    elif kind == "label" and rest[0] in naive.nodes:
        await edits.replace_node(rest[0], spec(rest[0], labels={"rack": rest[1]}), "alice")
        naive.nodes[rest[0]] = rest[1]
    elif kind == "delete" and naive.nodes.pop(rest[0], None) is not None:
        await edits.delete_node(rest[0], "alice")
        naive.own = {key: v for key, v in naive.own.items() if key[0] != rest[0]}
        for group in naive.groups.values():
            group.discard(rest[0])
    elif kind == "create" and rest[0] not in naive.nodes:
        await edits.create_nodes([spec(rest[0], labels={"rack": "1"})], "alice")
        naive.nodes[rest[0]] = "1"
    await fleet.settled()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=8, max_size=25))
def test_every_history_of_edits_gives_the_goals_of_a_naive_reading(history: list[tuple]) -> None:
    async def run() -> None:
        async with a_fleet() as fleet:
            naive = Naive()
            told: dict[tuple[str, int], tuple[str, ...]] = {}
            for step in [*START, *history]:
                heard = len(fleet.told)
                await play(fleet, naive, step)
                follow(fleet, told, heard)
                check(fleet.registry, naive, told)
            fresh = Registry(fleet.store, MODEL)
            await fresh.load()
            check(fresh, naive, None)

    asyncio.run(run())


def follow(fleet: Fleet, told: dict[tuple[str, int], tuple[str, ...]], heard: int) -> None:
    """Keep goals as an engine would that knows only what the changes tell."""
    for changes in fleet.told[heard:]:
        for index in changes.removed.tolist():
            for variable in VARIABLES:
                told.pop((variable, index), None)
        for variable, nodes in changes.goals_changed.items():
            column = fleet.registry.desires.goals(variable)
            for index in nodes.tolist():
                told[variable, index] = column.table[column.codes[index]]


def check(registry: Registry, naive: Naive, told: dict[tuple[str, int], tuple[str, ...]] | None) -> None:
    assert {name for name in registry.names if name} == set(naive.nodes)
    for name in naive.nodes:
        index = registry.index_of(name)
        desires = {desire.variable: desire.values for desire in registry.desires.of(registry.index_of(name))}
        for variable in VARIABLES:
            goal = naive.goal(name, variable)
            expected = () if goal is None else (goal,)
            column = registry.desires.goals(variable)
            assert column.table[column.codes[index]] == expected
            assert desires.get(variable, ()) == expected
            assert told is None or told.get((variable, index), ()) == expected


async def test_the_node_itself_rules_over_documents_and_unsetting_gives_way_to_them() -> None:
    async with a_fleet("n1") as fleet:
        await fleet.edits.put_document(
            DesireDocument(name="d", select="*", set={"image": ("v1",)}, priority=1000), "alice"
        )
        await fleet.edits.set_desires(fleet.at("n1"), {"image": "mine"}, [], "bob")
        await fleet.settled()
        [own] = fleet.registry.desires.of(fleet.registry.index_of("n1"))
        assert (own.values, own.author, own.origin) == (("mine",), "bob", "node")
        assert own.revision == fleet.registry.revision
        await fleet.edits.set_desires(fleet.at("n1"), {}, ["image"], "bob")
        await fleet.settled()
        [given_by] = fleet.registry.desires.of(fleet.registry.index_of("n1"))
        assert (given_by.values, given_by.author, given_by.origin) == (("v1",), "alice", "d")


async def test_several_values_are_one_goal_in_whatever_order_they_are_given() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.set_desires(fleet.at("n1"), {"image": ["b", "a"]}, [], "alice")
        await fleet.edits.set_desires(fleet.at("n2"), {"image": ("a", "b", "a")}, [], "alice")
        await fleet.settled()
        codes = fleet.registry.desires.goals("image").codes
        assert codes[0] == codes[1] != 0
        assert fleet.names(fleet.registry.select("want:image=b")) == ["n1", "n2"]


async def test_a_preview_tells_what_would_be_wanted_and_changes_nothing() -> None:
    async with a_fleet("n1", "n2") as fleet:
        await fleet.edits.put_document(DesireDocument(name="d", select="*", set={"power": ("on",)}), "alice")
        await fleet.edits.set_desires(fleet.at("n2"), {"image": "mine"}, [], "alice")
        await fleet.settled()
        document = DesireDocument(name="d", select="n1", set={"power": ("off",), "image": ("v1",)})
        seen = fleet.registry.desires.preview(fleet.at("n1", "n2"), {"os": ("up",)}, [document])
        assert seen == {"power": [("off",), ()], "image": [(), ("mine",)], "os": [(), ("up",)]}
        assert fleet.goal("power", "n1") == ("on",) and fleet.goal("os", "n1") == ()
        assert fleet.registry.desires.documents["d"].document.select == "*"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=4, max_size=15), wanted, names)
def test_a_preview_tells_just_what_setting_it_comes_to(
    history: list[tuple], wish: Mapping[str, str], some: set[str]
) -> None:
    async def run() -> None:
        async with a_fleet() as fleet:
            naive = Naive()
            for step in [*START, *history]:
                await play(fleet, naive, step)
            nodes = fleet.at(*(name for name in sorted(some) if name in naive.nodes))
            seen = fleet.registry.desires.preview(nodes, {variable: (value,) for variable, value in wish.items()})
            if len(nodes):
                await fleet.edits.set_desires(nodes, wish, [], "alice")
                await fleet.settled()
            for variable in VARIABLES:
                column = fleet.registry.desires.goals(variable)
                assert seen[variable] == [column.table[column.codes[index]] for index in nodes.tolist()]

    asyncio.run(run())


async def test_who_says_off_gets_off_though_an_image_was_wanted_of_the_node_itself() -> None:
    async with a_fleet("n1") as fleet:

        async def say(**wish: str) -> None:
            await fleet.edits.set_desires(fleet.at("n1"), wish, [], "alice")
            await fleet.settled()

        await say(image="v1")
        await say(power="off")
        assert (fleet.goal("power", "n1"), fleet.goal("image", "n1")) == (("off",), ())
        await say(power="on")
        assert (fleet.goal("power", "n1"), fleet.goal("image", "n1")) == (("on",), ("v1",)), "it was not taken back"
        await say(power="off")
        await say(image="v2")
        assert fleet.goal("image", "n1") == ("v2",), "said last"
        await say(power="off")
        assert fleet.goal("image", "n1") == (), "said again"
        before = await fleet.store.revision()
        await say(power="off")
        assert await fleet.store.revision() == before, "said twice is said once"


async def test_what_is_set_on_a_node_that_a_document_keeps_off_is_named_as_waiting() -> None:
    async with a_fleet("n1", "n2") as fleet:
        parked = DesireDocument(name="parked", select="n1", set={"power": ("off",), "os": ("up",)})
        await fleet.edits.put_document(parked, "alice")
        await fleet.edits.set_desires(fleet.at("n1", "n2"), {"image": "v2"}, [], "bob")
        await fleet.settled()
        desires = fleet.registry.desires
        ((variable, values, keeps),) = desires.waiting(fleet.registry.index_of("n1"))
        assert (variable, values, keeps.origin, keeps.variable) == ("image", ("v2",), "parked", "power")
        assert desires.waiting(fleet.registry.index_of("n2")) == []
        await fleet.edits.set_desires(fleet.at("n1"), {"power": "on"}, [], "bob")
        await fleet.settled()
        assert desires.waiting(fleet.registry.index_of("n1")) == [], "it overrides the document"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (DesireDocument(name="", select="*", set={"power": ("on",)}), "name"),
        (DesireDocument(name="../x", select="*", set={"power": ("on",)}), "name"),
        (DesireDocument(name="d", select="", set={"power": ("on",)}), "empty"),
        (DesireDocument(name="d", select="state:ready", set={"power": ("on",)}), "by state or fact"),
        (DesireDocument(name="d", select="want:power=on", set={"power": ("on",)}), "by state or fact"),
        (DesireDocument(name="d", select="*", set={}), "wants nothing"),
        (DesireDocument(name="d", select="*", set={"power": ()}), "at least one value"),
        (DesireDocument(name="d", select="*", set={"power": ("blue",)}), "off, on"),
        (DesireDocument(name="d", select="*", set={"volts": ("on",)}), "known are"),
        (DesireDocument(name="d", select="*", set={"image": ("a\nb",)}), "printable"),
        (DesireDocument(name="d", select="*", set={"power": ("on",)}, priority=10**9), "priority"),
        (DesireDocument(name="d", select="n[0-99999999]", set={"power": ("on",)}), "at most"),
    ],
)
async def test_a_bad_document_is_refused_and_nothing_is_written(document: DesireDocument, words: str) -> None:
    async with a_fleet("n1") as fleet:
        revision = await fleet.store.revision()
        for attempt in (
            fleet.edits.put_document(document, "alice"),
            fleet.edits.apply([document], "alice"),
        ):
            with pytest.raises(BadRequest) as caught:
                await attempt
            assert words in str(caught.value)
        assert await fleet.store.revision() == revision
        assert not np.any(fleet.registry.desires.goals("power").codes)
