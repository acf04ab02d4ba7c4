"""Which chassis is whose, whatever a BMC says; and which of its power limits is the node's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import NotOffered
from strata.hardware.bmc.caps import accelerators, whole
from strata.hardware.bmc.protocol import PowerLimit
from strata.hardware.bmc.redfish.pairing import home_of
from strata.hardware.events.site import Site

ROOT = "/redfish/v1"
CHASSIS = f"{ROOT}/Chassis/1"
A, B = f"{ROOT}/Systems/A", f"{ROOT}/Systems/B"
IDS = ("A", "B", "C", "D")


def where(link: Any) -> str:
    return link if isinstance(link, str) else link.get("@odata.id", "")


def links(*paths: str) -> list[dict[str, str]]:
    return [{"@odata.id": path} for path in paths]


def some(kind: str) -> st.SearchStrategy[list[dict[str, str]]]:
    return st.lists(st.sampled_from([f"{ROOT}/{kind}/{one}" for one in IDS]), max_size=3).map(lambda all_: links(*all_))


def tree(kind: str, *names: tuple[str, str]) -> st.SearchStrategy[dict[str, Any]]:
    """Resources with any links, any id, or of which nothing could be read."""
    body = st.fixed_dictionaries(
        {"Id": st.sampled_from(IDS), "Links": st.fixed_dictionaries({name: some(to) for name, to in names})}
    )
    paths = st.sampled_from([f"{ROOT}/{kind}/{one}" for one in IDS])
    return st.dictionaries(paths, body | st.just({}), min_size=1, max_size=4)


@pytest.mark.slow
@given(
    tree("Systems", ("Chassis", "Chassis"), ("ManagedBy", "Managers")),
    tree("Chassis", ("ComputerSystems", "Systems"), ("Contains", "Chassis"), ("ManagedBy", "Managers")),
    tree("Managers", ("ManagerForServers", "Systems"), ("ManagerForChassis", "Chassis")),
)
def test_no_chassis_is_ever_two_nodes_own(systems: Any, chassis: Any, managers: Any) -> None:
    homes = [home_of(path, systems, chassis, managers, where) for path in systems]
    owned = [one for home in homes for one in home.own]
    assert len(owned) == len(set(owned))
    for home in homes:
        assert not set(home.own) & set(home.shared) and not set(home.own) & home.others
        assert bool(home.unclear) <= (not home.own and not home.shared)
        assert home.own or home.shared or home.unclear


def test_one_system_has_all_chassis_but_an_enclosure_that_may_hold_nodes_of_other_bmcs() -> None:
    parts = {f"{ROOT}/Chassis/{name}": {"ChassisType": kind} for name, kind in (("Tray", "Module"), ("E", "Enclosure"))}
    assert set(home_of(A, {A: {}}, parts, {}, where).own) == set(parts)
    named = {**parts, f"{ROOT}/Chassis/a": {"ChassisType": "Blade"}}
    assert home_of(A, {A: {}}, named, {}, where).own == (f"{ROOT}/Chassis/a", f"{ROOT}/Chassis/Tray")


@pytest.mark.parametrize("kind", ["DPU", "OS", "Virtual"])
def test_a_card_or_a_guest_does_not_take_the_chassis_from_its_node(kind: str) -> None:
    inside = {"Links": {"Chassis": links(CHASSIS)}}
    body = {"Links": {"ComputerSystems": links(A, B)}}
    home = home_of(A, {A: inside, B: {"SystemType": kind, **inside}}, {CHASSIS: body}, {}, where)
    assert (home.own, home.peers) == ((CHASSIS,), ())
    assert home_of(A, {A: inside, B: inside}, {CHASSIS: body}, {}, where).shared == (CHASSIS,)


# -- which limit


def limit(path: str, name: str) -> PowerLimit:
    return PowerLimit(id=path, name=name, watts=None)


def test_the_cap_of_a_node_is_not_that_of_a_part_of_it() -> None:
    processor = limit(f"{A}/Processors/CPU0/EnvironmentMetrics", "CPU0 power limit")
    gpu = limit(f"{CHASSIS}/Controls/Accelerator0PowerLimit", "Accelerator0 Power Limit")
    node = limit(f"{CHASSIS}/Controls/NodePowerLimit", "Node Power Limit")
    assert whole([processor, gpu, node], "bmc") is node
    assert whole([processor, gpu], "bmc") is None
    assert accelerators([processor, gpu, node]) == [gpu]
    named = limit(f"{ROOT}/Chassis/gpu-node-7/Power#/PowerControl/0", "Server Power Control")
    assert whole([named], "bmc") is named, "the name of a chassis says nothing of what is capped"


def test_of_several_that_might_be_the_nodes_none_is_taken() -> None:
    old = [limit(f"{CHASSIS}/Power#/PowerControl/{place}", f"power limit {place}") for place in range(2)]
    assert whole(old, "bmc") is old[0], "one list begins with the whole"
    trays = [limit(f"{ROOT}/Chassis/{name}/Controls/Limit", "Power limit") for name in ("Tray1", "Tray2")]
    with pytest.raises(NotOffered, match=r"several power limits.*Chassis/Tray1.*Chassis/Tray2"):
        whole(trays, "bmc")


# -- whose event


def test_an_event_of_a_system_that_is_no_node_of_ours_is_not_told_of_its_neighbour() -> None:
    alone = Site("https://bmc", ((f"https://bmc{A}", "n1"),))
    assert [alone.node_of(path) for path in (f"{A}/Memory/1", "", CHASSIS, f"{B}/Memory/1", B)] == ["n1"] * 3 + ["", ""]
    assert Site("https://bmc", (("https://bmc", "n1"),)).node_of(f"{B}/Memory/1") == "n1"
