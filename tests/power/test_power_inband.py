"""Limits that nodes' kernels keep, on the files that Linux has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import BadRequest, NotOffered
from strata.power.limits.inband import FREQUENCIES, SLEEPS, Sysfs, Value, VirtualNodes, read, troubles, write


@pytest.fixture
def tree(tmp_path: Path) -> Sysfs:
    return VirtualNodes(tmp_path).tree("n1")


def test_a_virtual_node_has_the_files_that_a_kernel_has(tmp_path: Path) -> None:
    root = tmp_path / "nodes" / "all"
    tree = VirtualNodes(root).tree("../../n1")
    assert tree.choices("freq") == list(FREQUENCIES)
    assert tree.choices("sleep-limit") == list(range(len(SLEEPS)))
    files = [*tmp_path.rglob("scaling_max_freq")]
    assert files and all(root in path.parents for path in files), "whatever a node is called"


def test_limits_hold_within_what_the_processor_has_and_within_each_other(tree: Sysfs) -> None:
    tree.set("freq-max", 2000000)
    assert (tree.get("freq-min"), tree.get("freq-max")) == (1200000, 2000000)
    for attribute, value in (("freq-min", 2200000), ("freq-max", 1), ("freq-max", 9999999), ("freq", 2000000)):
        with pytest.raises(BadRequest):
            tree.set(attribute, value)  # type: ignore[arg-type]


def test_the_deepest_sleep_is_limited_by_disabling_what_is_deeper(tree: Sysfs, tmp_path: Path) -> None:
    tree.set("sleep-limit", 1)
    assert tree.get("sleep-limit") == 1
    states = sorted(tmp_path.rglob("disable"))
    assert [path.read_text().strip() for path in states] == ["0", "0", "1", "1", "1", "1"]
    with pytest.raises(BadRequest):
        tree.set("sleep-limit", len(SLEEPS))


def test_a_change_that_fails_does_not_keep_the_next_from_being_made(tree: Sysfs) -> None:
    tree.set("freq-max", 1400000)
    first, second, third = write(tree, [("freq-min", 2000000), ("freq-max", 2400000), ("freq-min", 2000000)])  # type: ignore[misc]
    assert (bool(first.trouble), second.trouble, third.trouble) == (True, "", "")
    [value] = read(tree, ["freq-min"])  # type: ignore[misc]
    assert value.value == 2000000


def test_what_the_processor_cannot_have_changes_nothing_not_even_what_it_could(tree: Sysfs) -> None:
    done = write(tree, [("freq-min", 1400000), ("freq-max", 9999999), ("sleep-limit", 1)])
    assert [one.trouble.partition(" ")[0] for one in done] == ["not", "freq-max:", "not"]  # type: ignore[union-attr]
    assert [one.value for one in read(tree, ["freq-min", "freq-max", "sleep-limit"])] == [1200000, 2601000, 5]  # type: ignore[union-attr]


def test_the_last_setting_of_a_limit_says_whether_it_is_as_it_was_asked_to_be() -> None:
    low, high = Value(trouble="too low"), Value(2, 1.0)
    assert troubles(["min", "max", "min"], [low, high, high]) == ""
    assert troubles(["min", "max", "sleep"], [low, high, low]) == "min, sleep: too low"


def test_a_kernel_without_such_files_offers_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotOffered):
        Sysfs(tmp_path).choices("freq")
    with pytest.raises(NotOffered):
        Sysfs(tmp_path).get("sleep-limit")


async def test_nodes_keep_their_own_limits(tmp_path: Path) -> None:
    nodes = VirtualNodes(tmp_path)
    await nodes.set(["a"], [("sleep-limit", 0)])
    found = await nodes.get(["a", "b"], ["sleep-limit"])
    assert [one[0].value for one in found.values()] == [0, 5]  # type: ignore[index]


async def test_the_clock_of_a_virtual_node_stays_within_its_limits(tmp_path: Path) -> None:
    nodes = VirtualNodes(tmp_path)
    await nodes.set(["a"], [("freq-max", 2000000)])
    assert (await nodes.get(["a"], ["freq"]))["a"][0].value == 2000000  # type: ignore[index]
