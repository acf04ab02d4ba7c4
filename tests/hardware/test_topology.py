"""The graph of cables: what both ends say is one link, what does not fit is reported, and nobody guesses."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.hardware.bmc.protocol import Identity
from strata.hardware.fabric.build import Row, build, read_rows
from strata.hardware.fabric.topology import Topology
from strata.hardware.inventory.records import Component, Found, Machine, Neighbour, Port
from support.work import counted


def mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (2, 0, 0, number >> 16 & 255, number >> 8 & 255, number & 255))


def switch(name: str, ports: dict[str, Neighbour | None], **more: object) -> Found:
    """The account of a switch's BMC."""
    path = f"/redfish/v1/Fabrics/HSN/Switches/{name}"
    return Found(
        address=f"https://{name}",
        identity=Identity(),
        time=0.0,
        fabric="HSN",
        components=(Component(id=path, kind="switch", name=name, model="S64"),),
        ports=tuple(
            Port(id=f"{path}/Ports/{port}", owner=path, name=port, neighbour=heard, up=True, speed_gbps=200)
            for port, heard in ports.items()
        ),
        **more,  # type: ignore[arg-type]
    )


def node(name: str, number: int, hears: Neighbour | None = None) -> Found:
    """The account of a node's BMC."""
    nic = "/redfish/v1/Chassis/1/NetworkAdapters/NIC1"
    return Found(
        address=f"https://bmc-{name}",
        identity=Identity(),
        time=0.0,
        machines=(Machine(id="/redfish/v1/Systems/1", address=f"https://bmc-{name}", macs=(mac(number),)),),
        components=(Component(id=nic, kind="nic", name="NIC1"),),
        ports=(Port(id=f"{nic}/Ports/1", owner=nic, name="1", mac=mac(number), neighbour=hears),),
    )


def to(system: str, port: str) -> Neighbour:
    return Neighbour(system=system, port=port)


def heard(number: int) -> Neighbour:
    return Neighbour(chassis=mac(number).upper(), port=mac(number).upper())


def node_of(address: str) -> str:
    return address.removeprefix("https://bmc-") if "bmc-" in address else ""


def built(*founds: Found, rows: list[Row] | None = None) -> Topology:
    return build(founds, node_of, rows or [])


def links(topology: Topology) -> set[str]:
    return {f"{link.a} {link.b} {link.source}" for link in topology.links}


FLEET = (
    switch("leaf1", {"01": heard(1), "02": heard(2), "49": to("spine", "1")}),
    switch("leaf2", {"01": heard(3), "49": to("spine", "2")}),
    switch("spine", {"1": to("leaf1", "49"), "2": to("LEAF2", "49"), "3": None}),
    node("n1", 1, to("leaf1", "01")),
    node("n2", 2),
    node("n3", 3, to("leaf2", "01")),
)


def test_what_both_ends_say_is_one_link() -> None:
    topology = built(*FLEET)
    assert links(topology) == {
        "leaf1:01 n1:NIC1 lldp",
        "leaf1:02 n2:NIC1 lldp",
        "leaf2:01 n3:NIC1 lldp",
        "leaf1:49 spine:1 lldp",
        "leaf2:49 spine:2 lldp",
    }
    assert topology.conflicts == [] and topology.switches["leaf1"].fabric == "HSN"


def told_twice(serial: str) -> Topology:
    """A switch that its own BMC and another service tell of, each with a serial."""
    own = switch("leaf1", {"01": heard(1)})
    part = msgspec.structs.replace(own.components[0], serial="SW1")
    manager = msgspec.structs.replace(part, serial=serial)
    return built(
        msgspec.structs.replace(own, components=(part,)),
        msgspec.structs.replace(own, address="https://manager", components=(manager,)),
        node("n1", 1),
    )


def test_a_switch_that_two_services_tell_of_is_one_if_its_name_and_serial_are() -> None:
    once = told_twice("SW1")
    assert list(once.switches) == ["leaf1"] and links(once) == {"leaf1:01 n1:NIC1 lldp"} and not once.conflicts
    assert len(told_twice("SW2").switches) == len(told_twice("").switches) == 2


def test_nodes_that_share_a_switch_are_near() -> None:
    topology = built(*FLEET)
    assert topology.near(["n3", "n1", "n2", "ghost"]) == [("leaf1", ["n1", "n2"]), ("leaf2", ["n3"]), ("", ["ghost"])]


def test_one_end_is_enough() -> None:
    assert links(built(switch("leaf1", {"01": heard(1)}), node("n1", 1))) == {"leaf1:01 n1:NIC1 lldp"}
    assert links(built(switch("leaf1", {"01": None}), node("n1", 1, to("leaf1", "01")))) == {"leaf1:01 n1:NIC1 lldp"}
    assert links(built(switch("leaf1", {"01": to("n1", "eth0")}), node("n1", 1))) == {"leaf1:01 n1:eth0 lldp"}


def test_a_nic_with_two_names_is_no_conflict() -> None:
    topology = built(switch("leaf1", {"01": to("n1", "eth0")}), node("n1", 1, to("leaf1", "01")))
    assert topology.conflicts == [] and links(topology) == {"leaf1:01 n1:NIC1 lldp"}


def test_two_ends_that_disagree_are_a_conflict_and_no_link() -> None:
    topology = built(switch("leaf1", {"01": heard(1), "02": None}), node("n1", 1, to("leaf1", "02")))
    assert links(topology) == set()
    assert topology.conflicts == [
        "n1:NIC1 is cabled to leaf1:01 (leaf1 says so) and to leaf1:02 (n1 says so)",
    ]


def test_one_port_that_two_nodes_claim_is_a_conflict() -> None:
    topology = built(switch("leaf1", {"01": None}), node("n1", 1, to("leaf1", "01")), node("n2", 2, to("leaf1", "01")))
    assert links(topology) == set() and len(topology.conflicts) == 1
    assert "leaf1:01 is cabled to" in topology.conflicts[0]


def test_what_a_bmc_says_of_its_own_ports_counts_too() -> None:
    path = "/redfish/v1/Fabrics/F/Switches"
    found = Found(
        address="https://fm",
        identity=Identity(),
        time=0.0,
        components=tuple(Component(id=f"{path}/{name}", kind="switch", name=name) for name in ("a", "b")),
        ports=(
            Port(id=f"{path}/a/Ports/1", owner=f"{path}/a", name="1", connected=(f"{path}/b/Ports/7",)),
            Port(id=f"{path}/b/Ports/7", owner=f"{path}/b", name="7", connected=(f"{path}/a/Ports/1",)),
        ),
    )
    assert links(built(found)) == {"a:1 b:7 redfish"}


def test_a_file_fills_what_nobody_hears_and_its_contradictions_are_named() -> None:
    rows = read_rows(
        "switch,port,node,nic\nleaf1,01,n1,\nleaf1,02,n9,hsn0\nleaf2,01,n2,hsn0\nnew,1,leaf1,50\n", "t.csv"
    )
    topology = built(*FLEET, rows=rows)
    assert "new:1 leaf1:50 file" in links(topology)
    assert topology.conflicts == [
        "leaf1:02: the topology file says n9:hsn0, n2:NIC1 is heard",
        "leaf2:01: the topology file says n2:hsn0, n3:NIC1 is heard",
    ]
    assert "leaf2:01 n3:NIC1 lldp" in links(topology), "where the cable goes is what is heard"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "the header is missing"),
        ("a,b\n1,2\n", "the header is a,b"),
        ("switch,port,node,nic\nleaf1,,n1,\n", r"t line 2: port is missing"),
        ("switch,port,node\nleaf1,1,n1\nLEAF1,1,n2\n", r"t line 3: LEAF1:1 is also at t line 2"),
        ("- {switch: a}\n", r"t item 1: port is missing"),
        ("- {switch: a, colour: red}\n", r"t item 1: not a cable"),
        ("- [\n", "t: not YAML"),
        ("switch,port,node\na\x1b,1,n\n", "switch is missing or no plain text"),
    ],
)
def test_a_wrong_file_says_where(text: str, wrong: str) -> None:
    with pytest.raises(BadRequest, match=wrong):
        read_rows(text, "t")


def test_a_file_may_be_yaml() -> None:
    assert read_rows("- {switch: leaf1, port: 1, node: n1, nic: hsn0}\n", "t") == [
        Row(switch="leaf1", port="1", node="n1", nic="hsn0")
    ]


_TEXT = st.sampled_from(["", "leaf1", "LEAF1", "n1", "n2", "01", "1", mac(1), mac(2).upper(), "\x1b[31m", "x" * 300])
_HEARD = st.builds(Neighbour, chassis=_TEXT, port=_TEXT, system=_TEXT, mac=_TEXT)


@given(st.lists(st.one_of(st.none(), _HEARD), max_size=4), _HEARD, _HEARD)
def test_whatever_is_heard_no_end_has_two_cables(ports: list[Neighbour | None], one: Neighbour, two: Neighbour) -> None:
    topology = built(
        switch("leaf1", {f"{number:02}": found for number, found in enumerate(ports)}),
        node("n1", 1, one),
        node("n2", 2, two),
    )
    ends = [end for link in topology.links for end in (link.a, link.b)]
    assert len(set(ends)) == len(ends)


@pytest.mark.slow
def test_ten_thousand_nodes_cost_no_more_each_than_a_few() -> None:
    founds = [node(f"n{i}", i, to(f"leaf{i // 32}", f"{i % 32:02}")) for i in range(10_000)]
    founds += [switch(f"leaf{s}", {f"{p:02}": heard(s * 32 + p) for p in range(32)}) for s in range(313)]
    with counted() as work:
        topology = built(*founds)
    assert work.calls < 500 * len(founds)
    assert len(topology.links) == 10_000 and not topology.conflicts
