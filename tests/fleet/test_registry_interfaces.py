"""The network ports of nodes: what is accepted, who may have what, and how they come to addresses."""

from __future__ import annotations

import asyncio

import pytest

from strata.core.errors import BadRequest, Conflict
from strata.core.node import Interface
from strata.fleet.nodes.records import InterfaceSpec
from strata.provisioning.addresses import Pool, misplaced
from strata.provisioning.networks import parse
from support.registry_support import Fleet, YieldingStore, a_fleet, spec

NETWORKS = parse(
    """
subnets:
  - {network: 10.77.0.0/24, interface: br0, server: 10.77.0.1, range: 10.77.0.10-10.77.0.250}
  - {network: 10.78.0.0/24, interface: br1, server: 10.78.0.1}
""",
    source="networks.yaml",
)


def mac(number: int) -> str:
    return f"52:54:00:00:00:{number:02x}"


def gives_addresses(fleet: Fleet) -> None:
    fleet.edits.addresses = lambda is_taken: Pool(NETWORKS, is_taken).assign


def addresses(fleet: Fleet, name: str) -> list[str]:
    return [interface.address for interface in fleet.registry.node(name).interfaces]


async def test_interfaces_are_kept_in_their_one_form() -> None:
    async with a_fleet() as fleet:
        given = InterfaceSpec(mac="52-54-00-AB-CD-EF", address="10.77.0.11", name="boot", port="sw/Eth1/5")
        (result,) = await fleet.edits.create_nodes([spec("n1", interfaces=(given,))], "alice")
        assert result.ok
        await fleet.settled()
        assert fleet.registry.node("n1").interfaces == (
            Interface(mac="52:54:00:ab:cd:ef", address="10.77.0.11", name="boot", port="sw/Eth1/5"),
        )


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ([Interface(mac="52:54")], "interface 1: a MAC is written as"),
        ([Interface(mac="01:00:5e:00:00:01")], "a MAC is written as"),
        ([Interface(mac=mac(1)), Interface(mac=mac(2), address="10.77.0.256")], "'10.77.0.256' is no IPv4"),
        ([Interface(port="no slash")], "a port is remote-id/circuit-id"),
        ([Interface(address="10.77.0.1")], "must have a MAC, or the port"),
        ([Interface(mac=mac(1), name="a\x1bb")], "printable"),
        ([Interface(mac=mac(1), address="10.77.0.9"), Interface(mac=mac(2), address="10.77.0.9")], "the same address"),
        ([Interface(mac=mac(1), name="a"), Interface(mac=mac(2), name="a")], "the same name"),
        ([Interface(mac=mac(at)) for at in range(17)], "17 interfaces; at most 16"),
    ],
)
async def test_a_wrong_interface_is_refused_with_what_would_do(wrong: list[Interface], complaint: str) -> None:
    async with a_fleet() as fleet:
        (result,) = await fleet.edits.create_nodes([spec("n1", interfaces=tuple(wrong))], "alice")
        assert result.status == 400
        assert complaint in result.error


async def test_no_two_nodes_have_one_mac_address_or_port() -> None:
    own = Interface(mac=mac(1), address="10.77.0.11", port="sw/1")
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("n1", interfaces=(own,))], "alice")
        await fleet.settled()
        others = [
            spec("mac", interfaces=(Interface(mac=mac(1)),)),
            spec("address", interfaces=(Interface(mac=mac(2), address="10.77.0.11"),)),
            spec("port", interfaces=(Interface(port="sw/1"),)),
            spec("good", interfaces=(Interface(mac=mac(3)),)),
            spec("twin", interfaces=(Interface(mac=mac(3)),)),
        ]
        results = await fleet.edits.create_nodes(others, "alice")
        assert [result.status for result in results] == [409, 409, 409, 201, 400]
        assert f"MAC {mac(1)} is that of n1" in results[0].error
        assert f"MAC {mac(3)} is also that of good" in results[4].error
        await fleet.settled()
        with pytest.raises(Conflict, match="port sw/1 is that of n1"):
            await fleet.edits.replace_node("good", spec("good", interfaces=(Interface(port="sw/1"),)), "alice")


async def test_what_a_node_gave_up_another_may_have() -> None:
    own = Interface(mac=mac(1), address="10.77.0.11")
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes([spec("n1", interfaces=(own,)), spec("n2")], "alice")
        await fleet.edits.replace_node("n1", spec("n1"), "alice")
        await fleet.edits.replace_node("n2", spec("n2", interfaces=(own,)), "alice")
        await fleet.edits.delete_node("n2", "alice")
        await fleet.settled()
        (result,) = await fleet.edits.create_nodes([spec("n3", interfaces=(own,))], "alice")
        assert result.ok


async def test_an_interface_without_an_address_is_given_one_that_is_free() -> None:
    async with a_fleet() as fleet:
        gives_addresses(fleet)
        specs = [
            spec("n1", interfaces=(Interface(mac=mac(1)), Interface(mac=mac(2)))),
            spec("n2", interfaces=(Interface(mac=mac(3)),)),
            spec("n3", interfaces=(Interface(mac=mac(4), address="10.77.0.11"),)),
            spec("n4"),
        ]
        assert all(result.ok for result in await fleet.edits.create_nodes(specs, "alice"))
        await fleet.settled()
        assert addresses(fleet, "n1") == ["10.77.0.10", "10.78.0.2"]
        assert addresses(fleet, "n2") == ["10.77.0.12"]
        assert addresses(fleet, "n4") == []


async def test_an_address_stays_when_the_description_leaves_it_out_and_with_a_new_card_too() -> None:
    async with a_fleet() as fleet:
        gives_addresses(fleet)
        told = spec("n1", interfaces=(Interface(mac=mac(1), name="boot"),))
        await fleet.edits.create_nodes([told], "alice")
        await fleet.settled()
        before = await fleet.store.revision()
        await fleet.edits.replace_node("n1", told, "alice")
        assert await fleet.store.revision() == before
        moved = spec("n1", role="login", interfaces=(Interface(mac=mac(9), name="boot"),))
        await fleet.edits.replace_node("n1", moved, "alice")
        await fleet.settled()
        assert addresses(fleet, "n1") == ["10.77.0.10"]


async def test_two_writers_never_give_one_address_to_two_nodes() -> None:
    store = YieldingStore()
    async with a_fleet(store=store) as one, a_fleet(store=store) as other:
        gives_addresses(one)
        gives_addresses(other)
        made = await asyncio.gather(
            *(
                fleet.edits.create_nodes([spec(f"{who}{at}", interfaces=(Interface(mac=mac(at + base)),))], who)
                for at in range(10)
                for who, fleet, base in (("a", one, 0), ("b", other, 100))
            )
        )
        assert all(result.ok for results in made for result in results)
        await one.settled()
        given = [addresses(one, f"{who}{at}")[0] for who in "ab" for at in range(10)]
        assert len(set(given)) == 20


async def test_a_description_with_a_bad_interface_changes_nothing() -> None:
    async with a_fleet("n1") as fleet:
        with pytest.raises(BadRequest, match="node n1: interface 1"):
            await fleet.edits.replace_node("n1", spec("n1", interfaces=(Interface(mac="x"),)), "alice")
        assert fleet.registry.node("n1").interfaces == ()


async def test_an_address_outside_of_every_boot_network_is_refused_with_those_that_there_are() -> None:
    async with a_fleet() as fleet:
        fleet.edits.misplaced = misplaced(NETWORKS)
        wrong, right = Interface(mac=mac(1), address="10.9.0.1"), Interface(mac=mac(2), address="10.78.0.9")
        specs = [spec("n1", interfaces=(right, wrong)), spec("n2", interfaces=(right,)), spec("n3")]
        refused, *made = await fleet.edits.create_nodes(specs, "alice")
        assert refused.status == 400
        assert "interface 2: 10.9.0.1 is in none of the boot networks: 10.77.0.0/24, 10.78.0.0/24" in refused.error
        assert [one.status for one in made] == [201, 201]
        await fleet.settled()
        with pytest.raises(BadRequest, match=r"in none of the boot networks: 10\.77\.0\.0/24"):
            await fleet.edits.replace_node("n2", spec("n2", interfaces=(right, wrong)), "alice")
        with pytest.raises(BadRequest, match="in none of the boot networks"):
            await fleet.edits.replace_node("n4", spec("n4", interfaces=(wrong,)), "alice")


async def test_an_address_that_was_right_once_does_not_keep_anybody_from_editing_the_rest() -> None:
    async with a_fleet() as fleet:
        old = Interface(mac=mac(1), address="10.9.0.1")
        await fleet.edits.create_nodes([spec("n1", interfaces=(old,))], "alice")
        await fleet.settled()
        fleet.edits.misplaced = misplaced(NETWORKS)
        await fleet.edits.replace_node("n1", spec("n1", role="login", interfaces=(old,)), "alice")
        await fleet.settled()
        assert (fleet.registry.node("n1").role, addresses(fleet, "n1")) == ("login", ["10.9.0.1"])


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("10.76.255.255", "in none of"),
        ("10.79.0.0", "in none of"),
        ("0.0.0.0", "in none of"),
        ("10.77.0.0", "the address of 10.77.0.0/24 itself"),
        ("10.78.0.255", "of all its machines"),
        ("10.77.0.1", "the boot server's own"),
        ("10.77.0.2", ""),
        ("10.78.0.254", ""),
    ],
)
def test_where_a_node_can_be(address: str, complaint: str) -> None:
    why = misplaced(NETWORKS)(address)
    assert complaint in why and bool(why) == bool(complaint)


def test_without_an_ipv4_network_any_address_will_do() -> None:
    only = parse("ipv6: [{prefix: 'fd77::/64', interface: br0}]", source="f")
    assert misplaced(only)("192.0.2.1") == ""
