"""Who is behind a MAC, a port, a name or an address."""

from __future__ import annotations

import pytest

from strata.core.node import Interface, Node
from strata.provisioning.directory import Directory
from support.work import counted


def node(name: str, **interface: str) -> Node:
    return Node(name=name, uid=1, interfaces=(Interface(**interface),))


def test_a_node_is_found_by_everything_that_it_has():
    one = node("n1", mac="52:54:00:00:00:01", address="10.77.0.11", port="sw/1")
    directory = Directory([one])
    assert directory.by_mac("52:54:00:00:00:01") is one
    assert directory.by_port("sw/1") is one
    assert directory.by_address("10.77.0.11") is one
    assert directory.by_name("n1") is one
    assert directory.by_mac("") is directory.by_port("") is directory.by_address("") is None
    assert list(directory) == [one]


def test_an_update_replaces_everything_that_was_there():
    directory = Directory([node("n1", mac="52:54:00:00:00:01"), node("n2", mac="52:54:00:00:00:02")])
    directory.update([node("n1", mac="52:54:00:00:00:03")])
    assert directory.by_mac("52:54:00:00:00:01") is None
    assert directory.by_mac("52:54:00:00:00:02") is None
    assert directory.by_name("n2") is None
    assert directory.by_mac("52:54:00:00:00:03") is directory.by_name("n1")
    assert len(directory) == 1


def test_what_two_nodes_claim_is_neithers_until_one_gives_way():
    one, two = node("n1", mac="52:54:00:00:00:01"), node("n2", mac="52:54:00:00:00:01", address="10.77.0.12")
    directory = Directory([one, two])
    assert directory.by_mac("52:54:00:00:00:01") is None
    assert directory.by_address("10.77.0.12") is two
    assert directory.disputed == {"mac 52:54:00:00:00:01": ("n1", "n2")}
    directory.update([one])
    assert directory.by_mac("52:54:00:00:00:01") is one
    assert directory.disputed == {}


def test_three_claims_are_settled_one_by_one():
    claims = [node(f"n{at}", address="10.77.0.9") for at in range(3)]
    directory = Directory(claims)
    directory.update(claims[1:])
    assert directory.by_address("10.77.0.9") is None
    assert directory.is_taken("10.77.0.9")
    assert directory.disputed == {"address 10.77.0.9": ("n1", "n2")}
    directory.update(claims[2:])
    assert directory.by_address("10.77.0.9") is claims[2]


def test_one_node_may_have_one_mac_in_two_networks():
    both = Node(
        name="n1",
        uid=1,
        interfaces=(
            Interface(mac="52:54:00:00:00:01", address="10.77.0.11"),
            Interface(mac="52:54:00:00:00:01", address="10.78.0.11"),
        ),
    )
    directory = Directory([both])
    assert directory.by_mac("52:54:00:00:00:01") is both
    assert directory.disputed == {}


@pytest.mark.slow
def test_a_whole_fleet_is_taken_in_at_once_and_one_change_costs_little():
    fleet = [
        Node(
            name=f"n{at}",
            uid=at + 1,
            interfaces=(
                Interface(mac=f"52:54:{at:08x}", address=f"10.{at}", port=f"sw/{at}"),
                Interface(mac=f"53:54:{at:08x}", address=f"11.{at}"),
            ),
        )
        for at in range(100_000)
    ]
    directory = Directory()
    with counted() as work:
        directory.update(fleet)
    assert work.calls < 50 * len(fleet)
    changed = [*fleet[:-1], node("n99999", mac="52:54:00:00:00:01")]
    with counted() as work:
        directory.update(changed)
    assert work.calls < 3 * len(fleet), "each is looked at, and no more"
    assert directory.by_mac("52:54:00:00:00:01") is changed[-1]
    assert directory.by_mac(f"52:54:{99_999:08x}") is None
