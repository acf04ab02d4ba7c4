"""Names, places and groups of a simulated machine."""

from __future__ import annotations

import pytest

from strata.core.errors import BadRequest
from strata.core.xname import parse
from strata.virtual.fleet.names import PER_CABINET, simulated_groups, simulated_nodes


def test_names_sort_and_are_distinct_like_uids_nids_and_places():
    nodes = simulated_nodes(1000)
    assert nodes[0].name == "n00001"
    assert [n.name for n in nodes] == sorted(n.name for n in nodes)
    for field in ("name", "uid", "nid", "location"):
        assert len({getattr(n, field) for n in nodes}) == 1000


def test_places_are_xnames_and_a_cabinet_holds_256():
    nodes = simulated_nodes(2 * PER_CABINET)
    assert nodes[0].location == "x1000c0s0b0n0"
    assert nodes[-1].location == "x1001c7s7b1n1"
    for node in nodes[::37]:
        assert parse(node.location).text == node.location


def test_groups_cover_the_fleet_and_gpu_nodes_are_compute_nodes_too():
    nodes = simulated_nodes(1000)
    sizes = {g.name: sum(last - first + 1 for first, last in g.members) for g in simulated_groups(nodes)}
    assert sizes == {"compute": 985, "gpu": 200, "login": 5, "service": 10}


def test_a_tiny_fleet_is_all_compute():
    assert {n.role for n in simulated_nodes(4)} == {"compute"}
    assert simulated_nodes(0) == []


def test_every_node_has_its_controller_below_the_given_address():
    assert simulated_nodes(3, bmc_base="http://127.0.0.1:5/")[1].bmc == "http://127.0.0.1:5/bmc/n00002"
    assert simulated_nodes(3)[1].bmc == ""


def test_a_bad_count_or_prefix_is_refused():
    with pytest.raises(BadRequest):
        simulated_nodes(-1)
    with pytest.raises(BadRequest):
        simulated_nodes(1, prefix="-")
