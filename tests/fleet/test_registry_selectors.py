"""The selector language: whom it means, and what it says of mistakes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from strata.core.errors import BadRequest, NotFound
from strata.fleet.selectors.language import parse
from support.registry_support import Fleet, a_fleet, spec
from support.work import counted


class States:
    """An engine of which n1 is faulted, n2 has power off, and the rest is unknown."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def _only(self, name: str) -> np.ndarray:
        mask = np.zeros(self.fleet.registry.size, dtype=np.bool_)
        mask[self.fleet.registry.index_of(name)] = True
        return mask

    def state_mask(self, state: str) -> np.ndarray:
        return self._only("n1") if state == "faulted" else ~self._only("n1") & (state == "unknown")

    def fact_mask(self, variable: str, value: str) -> np.ndarray:
        return self._only("n2") if (variable, value) == ("power", "off") else ~self._only("n2")


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes(
            [
                spec("n1", location="x1000c0s0b0n0", labels={"rack": "7"}),
                spec("n2", location="x1000c0s1b0n0", labels={"rack": "8"}),
                spec("n10", location="x1000c1s0b0n0", role="login"),
                spec("gpu-a", location="x100c0s0b0n0", architecture="aarch64"),
            ],
            "alice",
        )
        await fleet.settled()
        await fleet.edits.put_group("compute", fleet.at("n1", "n2"), "alice")
        await fleet.edits.put_group("gpu", fleet.at("n2", "gpu-a"), "alice")
        await fleet.edits.set_desires(fleet.at("n10"), {"image": "v2"}, [], "alice")
        await fleet.settled()
        yield fleet


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", ["gpu-a", "n1", "n10", "n2"]),
        ("n1", ["n1"]),
        ("n[1-2,10]", ["n1", "n10", "n2"]),
        ("@compute", ["n1", "n2"]),
        ("@compute!@gpu", ["n1"]),
        ("@compute&@gpu", ["n2"]),
        ("@compute^@gpu", ["gpu-a", "n1"]),
        ("n[1-2],gpu-a!n2", ["gpu-a", "n1"]),
        ("@*", ["gpu-a", "n1", "n2"]),
        ("n1*", ["n1", "n10"]),
        ("n?", ["n1", "n2"]),
        ("@compute !@gpu", ["n1"]),
        ("!role:compute", ["n10"]),
        ("role:login,service", ["n10"]),
        ("role:login n1", []),
        ("arch:aarch64", ["gpu-a"]),
        ("label:rack=7", ["n1"]),
        ("label:rack", ["n1", "n2"]),
        ("label:row", []),
        ("location:x1000", ["n1", "n10", "n2"]),
        ("location:x1000c0", ["n1", "n2"]),
        ("location:x100", ["gpu-a"]),
        ("location:x1000c0s1b0n0", ["n2"]),
        ("state:faulted", ["n1"]),
        ("state:faulted,unknown", ["gpu-a", "n1", "n10", "n2"]),
        ("fact:power=off", ["n2"]),
        ("fact:power=unknown", ["gpu-a", "n1", "n10"]),
        ("want:image=v2", ["n10"]),
        ("want:image=v3", []),
    ],
)
async def test_a_selector_names_just_these_nodes(fleet: Fleet, text: str, names: list[str]) -> None:
    assert fleet.names(fleet.registry.select(text, States(fleet))) == names


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", BadRequest, "empty"),
        ("   ", BadRequest, "empty"),
        ("n3", NotFound, "n3"),
        ("n01", NotFound, "n1"),
        ("N2", NotFound, "n2"),
        ("n[1-900]", NotFound, "and 892 more"),
        ("@nobody", NotFound, "nobody"),
        ("rack:7", BadRequest, "label:"),
        ("group:compute", BadRequest, "a group is @NAME"),
        ("role:", BadRequest, "nothing after"),
        ("state:broken", BadRequest, "faulted"),
        ("fact:power", BadRequest, "VARIABLE=VALUE"),
        ("fact:power=blue", BadRequest, "off, on"),
        ("fact:voltage=1", BadRequest, "power"),
        ("want:power=unknown", BadRequest, "cannot be desired"),
        ("location:q7", BadRequest, "q7"),
        ("n[1", BadRequest, "brackets"),
        ("n1,,n2", BadRequest, "missing"),
        ("@", BadRequest, "missing"),
        ("n1!", BadRequest, "missing"),
        ("n*[1-3]", BadRequest, "ranges"),
    ],
)
async def test_a_mistake_is_named_with_what_would_be_right(
    fleet: Fleet, text: str, error: type[BadRequest], words: str
) -> None:
    with pytest.raises(error) as caught:
        fleet.registry.select(text, States(fleet))
    assert type(caught.value) is error
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["n[0-99999999]", "n[1-9999]m[1-9999]", "@g[0-99999999]", "n[1-200000],m[1-200000]"])
async def test_a_range_bomb_is_refused_before_most_of_it_is_unfolded(fleet: Fleet, text: str) -> None:
    with counted() as work, pytest.raises(BadRequest):
        fleet.registry.select(text)
    assert work.calls < 8_000_000


async def test_states_cannot_be_asked_for_where_there_is_no_engine(fleet: Fleet) -> None:
    with pytest.raises(BadRequest, match="cannot be asked for here"):
        fleet.registry.select("state:ready")


async def test_only_nodes_and_groups_make_a_selector_static() -> None:
    assert all(parse(text).static for text in ("*", "n1,@g", "role:x label:a=b arch:x86_64 location:x1"))
    assert not any(parse(text).static for text in ("state:ready", "n1 fact:power=on", "want:power=on"))


async def test_what_does_not_exist_is_nobody_when_asked_leniently(fleet: Fleet) -> None:
    mask = parse("n[1-5],@nobody").mask(fleet.registry, strict=False)
    assert fleet.names(np.flatnonzero(mask)) == ["n1", "n2"]


async def test_a_deleted_node_is_in_no_selection(fleet: Fleet) -> None:
    await fleet.edits.delete_node("n2", "alice")
    await fleet.settled()
    for text in ("*", "!role:login", "n?", "!@compute", "@gpu"):
        assert "n2" not in fleet.names(fleet.registry.select(text))
        assert "" not in fleet.names(fleet.registry.select(text))


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("n1", True),
        ("n[1-4],n7", True),
        ("@a", True),
        ("@a,@b,n1", True),
        ("@a!@c", True),
        ("@a state:held", True),
        ("state:held @a", True),
        ("n*&@a", True),
        ("@c&@a", True),
        ("@c @a", True),
        ("@a^n1", True),
        ("*", False),
        ("n*", False),
        ("n?", False),
        ("@c", False),
        ("@*", False),
        ("@g[1-2]", False),
        ("@a,@c", False),
        ("@a,n*", False),
        ("@a^@c", False),
        ("n*!@a", False),
        ("!@a", False),
        ("!!@a", False),
        ("state:held", False),
        ("label:rack=7 role:compute", False),
        ("@a&@b,*", False),
    ],
)
def test_whether_a_selection_stays_within_groups_is_read_from_its_words(text: str, within: bool) -> None:
    assert parse(text).within(("a", "b")) is within


async def test_zeros_in_front_of_a_number_need_not_be_typed() -> None:
    async with a_fleet("n0001", "n0002", "n0010", "r1n01", "m1", "m01", "m001") as fleet:

        def found(text: str) -> list[str]:
            return fleet.names(fleet.registry.select(text, States(fleet)))

        assert found("n[1-2,10]") == ["n0001", "n0002", "n0010"]
        assert found("r1n1") == ["r1n01"]
        assert found("m1") == ["m1"], "a name that is there is meant"
        for nobody in ("n3", "n00001", "x1", "r01n01"):
            with pytest.raises(NotFound):
                found(nobody)


async def test_a_number_that_could_be_several_nodes_is_nobodys() -> None:
    async with a_fleet("m01", "m001") as fleet:
        with pytest.raises(NotFound, match="did you mean m01, m001"):
            fleet.registry.select("m1", States(fleet))
