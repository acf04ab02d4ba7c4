"""Limits that nodes' kernels keep, as simulated nodes have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from strata.core.errors import Unavailable
from strata.power.limits.inband import FREQUENCIES, SLEEPS, Attribute, Value, VirtualNodes, troubles


@pytest.fixture
def nodes(tmp_path: Path) -> VirtualNodes:
    return VirtualNodes(tmp_path)


async def done(nodes: VirtualNodes, *changes: tuple[Attribute, int]) -> Sequence[Value]:
    """What became of each change of ``n1``."""
    found = (await nodes.set(["n1"], changes))["n1"]
    assert not isinstance(found, Exception)
    return found


async def read(nodes: VirtualNodes, *attributes: Attribute) -> list[int]:
    found = (await nodes.get(["n1"], attributes))["n1"]
    assert not isinstance(found, Exception)
    return [one.value for one in found]


async def test_a_virtual_node_has_what_a_kernel_has_whatever_it_is_called(tmp_path: Path) -> None:
    root, name = tmp_path / "nodes" / "all", "../../n1"
    nodes = VirtualNodes(root)
    assert [*(await nodes.choices([name], "freq"))[name]] == [*FREQUENCIES]  # type: ignore[misc]
    assert [*(await nodes.choices([name], "sleep-limit"))[name]] == [*range(len(SLEEPS))]  # type: ignore[misc]
    await nodes.set([name], [("sleep-limit", 1)])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and all(root in path.parents for path in files)


async def test_limits_hold_within_what_the_processor_has_and_within_each_other(nodes: VirtualNodes) -> None:
    await done(nodes, ("freq-max", 2000000))
    assert await read(nodes, "freq-min", "freq-max") == [1200000, 2000000]
    changes: list[tuple[Attribute, int]] = [
        ("freq-min", 2200000), ("freq-max", 1), ("freq-max", 9999999), ("freq", 2000000),
    ]  # fmt: skip
    for change in changes:
        [value] = await done(nodes, change)
        assert value.trouble, change
    assert await read(nodes, "freq-min", "freq-max") == [1200000, 2000000]


async def test_the_deepest_sleep_is_one_that_the_processor_has(nodes: VirtualNodes) -> None:
    await done(nodes, ("sleep-limit", 1))
    assert await read(nodes, "sleep-limit") == [1]
    [value] = await done(nodes, ("sleep-limit", len(SLEEPS)))
    assert f"0 to {len(SLEEPS) - 1}" in value.trouble


async def test_a_change_that_fails_does_not_keep_the_next_from_being_made(nodes: VirtualNodes) -> None:
    await done(nodes, ("freq-max", 1400000))
    first, second, third = await done(nodes, ("freq-min", 2000000), ("freq-max", 2400000), ("freq-min", 2000000))
    assert (bool(first.trouble), second.trouble, third.trouble) == (True, "", "")
    assert await read(nodes, "freq-min") == [2000000]


async def test_what_the_processor_cannot_have_changes_nothing_not_even_what_it_could(nodes: VirtualNodes) -> None:
    found = await done(nodes, ("freq-min", 1400000), ("freq-max", 9999999), ("sleep-limit", 1))
    assert [one.trouble.partition(" ")[0] for one in found] == ["not", "freq-max:", "not"]
    assert await read(nodes, "freq-min", "freq-max", "sleep-limit") == [1200000, 2601000, 5]


def test_the_last_setting_of_a_limit_says_whether_it_is_as_it_was_asked_to_be() -> None:
    low, high = Value(trouble="too low"), Value(2, 1.0)
    assert troubles(["min", "max", "min"], [low, high, high]) == ""
    assert troubles(["min", "max", "sleep"], [low, high, low]) == "min, sleep: too low"


async def test_a_node_whose_limits_cannot_be_read_holds_nobody_up(nodes: VirtualNodes, tmp_path: Path) -> None:
    await nodes.set(["a", "b"], [("sleep-limit", 1)])
    broken = next(path for path in tmp_path.rglob("*") if path.is_file())
    broken.write_text("nonsense")
    found = list((await nodes.get(["a", "b"], ["sleep-limit"])).values())
    assert sum(isinstance(one, Unavailable) for one in found) == 1


async def test_nodes_keep_their_own_limits_whoever_asks_next(nodes: VirtualNodes, tmp_path: Path) -> None:
    await nodes.set(["a"], [("sleep-limit", 0)])
    found = await VirtualNodes(tmp_path).get(["a", "b"], ["sleep-limit"])
    assert [one[0].value for one in found.values()] == [0, 5]  # type: ignore[index]


async def test_the_clock_of_a_virtual_node_stays_within_its_limits(nodes: VirtualNodes) -> None:
    await done(nodes, ("freq-max", 2000000))
    assert await read(nodes, "freq") == [2000000]
