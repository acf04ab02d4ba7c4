"""The networks file: what it says, and what is said about a wrong one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Unavailable
from strata.provisioning.dhcp.radvd import config_text
from strata.provisioning.networks import parse, read

GOOD = """
unknown: discover
subnets:
  - network: 10.77.0.0/24
    interface: br0
    server: 10.77.0.1
    gateway:
    range: 10.77.0.10-10.77.0.249
  - {network: 10.78.0.0/16, interface: br0, server: 10.77.0.1, trust_ports: true, gateway: 10.78.0.1}
ipv6:
  - {prefix: "fd77::/64", interface: br0, dns: ["fd77::1"], domains: [cluster.example]}
"""


def test_a_file_says_what_the_boot_network_consists_of(tmp_path: Path):
    path = tmp_path / "networks.yaml"
    path.write_text(GOOD.replace("br0", "lo"))
    networks = read(path)
    first, second = networks.subnets
    assert (networks.boot_port, networks.unknown, networks.attempts) == (4280, "discover", 5)
    assert (str(first.server), first.gateway, first.lease, first.is_local) == ("10.77.0.1", None, 3600, True)
    assert not second.is_local
    assert networks.interfaces == ("lo",)
    assert networks.subnet_of("10.78.3.4") is second
    assert networks.subnet_of("192.0.2.1") is None
    assert networks.subnet_of("nonsense") is None


def test_a_network_behind_a_relay_is_relayed_by_its_gateway_unless_others_are_named():
    first, second = parse(GOOD, source="f").subnets
    assert (first.relayed_by, list(map(str, second.relayed_by))) == ((), ["10.78.0.1"])
    named = "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.9.0.1, gateway: 10.0.0.1, relays: [10.0.0.2]}]"
    (subnet,) = parse(named, source="f").subnets
    assert list(map(str, subnet.relayed_by)) == ["10.0.0.2"]
    assert int(subnet.relays[0]) in subnet.reserved, "no machine is given a relay's address"


def test_machines_that_are_no_nodes_get_the_end_of_the_range_unless_told_otherwise():
    first, second = parse(GOOD, source="f").subnets
    assert (first.discovery_span.size, first.discovery_span.last - first.span.first) == (30, 239)
    assert second.discovery_span.size == 1024


def test_routers_are_advertised_where_machines_boot_unless_another_router_does():
    assert parse(GOOD, source="f").advertised == ("br0",)
    quiet = "subnets: [{network: 10.0.0.0/24, interface: br1, server: 10.0.0.1, advertise: false}]"
    assert parse(quiet, source="f").advertised == ()
    relayed = "subnets: [{network: 10.0.0.0/24, interface: br1, server: 10.9.0.1, relays: [10.0.0.1]}]"
    assert parse(relayed, source="f").advertised == ()


def test_an_advertisement_says_the_prefixes_and_resolvers_and_that_we_are_no_router():
    text = config_text(parse(GOOD, source="f"))
    assert "AdvDefaultLifetime 0;" in text
    assert "prefix fd77::/64 { AdvOnLink on; AdvAutonomous on; };" in text
    assert "RDNSS fd77::1 {" in text
    assert "DNSSL cluster.example {" in text
    bare = "subnets: [{network: 10.0.0.0/24, interface: br1, server: 10.0.0.1}]"
    assert "prefix" not in config_text(parse(bare, source="f"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "f: expected a mapping"),
        ("unknown: maybe", "f: unknown: 'maybe' is neither 'ignore' nor 'discover'"),
        ("boot_port: 70000", "f: boot_port: expected a whole number"),
        ("subnets: x", "f: subnets: expected a list"),
        ("subnets: [x]", "f: subnets[0]: expected a mapping"),
        ("subnet: []", "unknown key 'subnet'; did you mean 'subnets'?"),
        ("subnets: [{network: 10.0.0.1/24, interface: a, server: 10.0.0.1}]", "subnets[0].network: expected an IPv4"),
        ("subnets: [{network: 10.0.0.0/31, interface: a, server: 10.0.0.1}]", "has no room"),
        ("subnets: [{network: 10.0.0.0/24, server: 10.0.0.1}]", "f: subnets[0]: interface is missing"),
        ("subnets: [{network: 10.0.0.0/24, interface: 'a b', server: 10.0.0.1}]", "interface: expected a name"),
        ("subnets: [{network: 10.0.0.0/24, interface: a, server: x}]", "expected an IPv4 address; found 'x'"),
        (
            "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, lease: 5}]",
            "lease: expected a whole number",
        ),
        ("subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, trust_ports: 7}]", "expected true or false"),
        ("subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, range: 9}]", "range: expected FIRST-LAST"),
        (
            "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, gateway: 10.1.0.1}]",
            "is not in 10.0.0.0/24",
        ),
        (
            "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, range: 10.0.0.9-10.0.1.9}]",
            "is no range of 10.0.0.0/24",
        ),
        (
            "subnets: [{network: 10.0.0.0/8, interface: a, server: 10.0.0.1}, "
            "{network: 10.1.0.0/16, interface: a, server: 10.0.0.1}]",
            "subnets[1].network: 10.1.0.0/16 overlaps 10.0.0.0/8",
        ),
        (
            "subnets: [{network: 10.1.0.0/24, interface: a, server: 10.0.0.1}]",
            "subnets[0].relays: 10.0.0.1 is not in 10.1.0.0/24, so its machines need a relay, and none is named",
        ),
        (
            "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, relays: [10.0.0.1]}]",
            "subnets[0].relays: 10.0.0.1 is the boot server's own address",
        ),
        (
            "subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, relays: [0.0.0.0]}]",
            "0.0.0.0 is no address of a relay",
        ),
        ("subnets: [{network: 10.0.0.0/24, interface: a, server: 10.0.0.1, relays: [x]}]", "expected an IPv4 address"),
        ("ipv6: [{prefix: 'fd77::/48', interface: a}]", "ipv6[0].prefix: machines make their own addresses in a /64"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_what_would_do(text: str, complaint: str):
    with pytest.raises(BadRequest) as caught:
        parse(text, source="f")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(("key", "wrong"), [("subnets[0]", "loo"), ("ipv6[0]", "boot7")])
def test_an_interface_that_this_machine_lacks_is_named_with_its_file_and_those_that_there_are(
    tmp_path: Path, key: str, wrong: str
):
    path = tmp_path / "networks.yaml"
    subnet, prefix = (wrong, "lo") if key == "subnets[0]" else ("lo", wrong)
    path.write_text(
        f"subnets: [{{network: 10.0.0.0/24, interface: {subnet}, server: 10.0.0.1}}]\n"
        f"ipv6: [{{prefix: 'fd77::/64', interface: {prefix}}}]\n"
    )
    with pytest.raises(Unavailable) as refused:
        read(path)
    said = str(refused.value)
    assert said.startswith(f"{path}: {key}.interface: this machine has no interface {wrong}; it has ")
    assert all(name in said for name in sorted(name for _, name in socket.if_nameindex())[:12])
    assert ("Did you mean lo?" in said) == (wrong == "loo")


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(BadRequest, match=r"networks\.yaml: cannot read it: No such file"):
        read(tmp_path / "networks.yaml")
