"""Addresses for interfaces that were given none."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from strata.core.node import Interface
from strata.provisioning.addresses import Pool
from strata.provisioning.networks import Networks, parse
from support.work import counted

TEXT = """
unknown: {unknown}
subnets:
  - {{network: 10.77.0.0/29, interface: br0, server: 10.77.0.1, gateway: 10.77.0.3}}
  - {{network: 10.78.0.0/24, interface: br0, server: 10.77.0.1, gateway: 10.78.0.1, range: 10.78.0.100-10.78.0.110}}
"""


def networks(unknown: str = "ignore") -> Networks:
    return parse(TEXT.format(unknown=unknown), source="f")


def given(pool: Pool, *interfaces: Interface) -> list[str]:
    return [interface.address for interface in pool.assign(interfaces)]


def test_an_interface_gets_the_first_address_that_nobody_has():
    pool = Pool(networks(), {"10.77.0.2"}.__contains__)
    assert given(pool, Interface(mac="a")) == ["10.77.0.4"]
    assert given(pool, Interface(mac="b")) == ["10.77.0.5"]


def test_several_interfaces_are_in_several_networks():
    pool = Pool(networks(), lambda _: False)
    assert given(pool, Interface(mac="a"), Interface(mac="b"), Interface(mac="c")) == ["10.77.0.2", "10.78.0.100", ""]


def test_an_address_that_was_given_stays_and_its_network_is_not_used_twice():
    pool = Pool(networks(), lambda _: False)
    assert given(pool, Interface(mac="a", address="10.77.0.6"), Interface(mac="b")) == ["10.77.0.6", "10.78.0.100"]


def test_a_full_network_gives_none():
    pool = Pool(networks(), lambda _: False)
    found = [given(pool, Interface(mac="a"))[0] for _ in range(6)]
    assert found == ["10.77.0.2", "10.77.0.4", "10.77.0.5", "10.77.0.6", "", ""]


def test_what_is_for_unknown_machines_is_not_for_nodes():
    pool = Pool(networks("discover"), lambda _: False)
    found = [given(pool, Interface(mac="a"))[0] for _ in range(4)]
    assert found == ["10.77.0.2", "10.77.0.4", "10.77.0.5", ""]


@pytest.mark.slow
def test_a_hundred_thousand_nodes_get_theirs_in_one_go():
    large = parse("subnets: [{network: 10.64.0.0/14, interface: br0, server: 10.64.0.1}]", source="f")
    pool = Pool(large, lambda _: False)
    with counted() as work:
        found = {pool.assign((Interface(mac="a"),))[0].address for _ in range(100_000)}
    assert work.calls < 100 * len(found), "nobody's search begins at the first address"
    assert len(found) == 100_000
    assert "10.64.0.1" not in found
    assert all(IPv4Address(one) in large.subnets[0].network for one in found)
