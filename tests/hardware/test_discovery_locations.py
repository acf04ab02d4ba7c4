"""Where machines are: from a mapping, from the switch, or nowhere; and never by guessing."""

from __future__ import annotations

import pytest
from test_inventory_store import found

from strata.core.errors import BadRequest
from strata.hardware.discovery.locations import Locations
from strata.hardware.discovery.sources import Candidate
from strata.hardware.inventory.records import Component, Found, Neighbour, Parts, Place, Port

NIC = "/redfish/v1/Chassis/1/NetworkAdapters/1"
MAC = "00:11:22:33:44:55"


def where(locations: Locations, one: Found, *, alone: bool = True) -> Place:
    parts = Parts(components=one.components, ports=one.ports)
    return locations.find(one.address, one.machines[0], parts, alone=alone)


def mapping(text: str) -> Locations:
    locations = Locations()
    locations.read(text)
    return locations


@pytest.mark.parametrize("key", ["address", "mac", "serial"])
def test_a_mapping_names_machines_by_any_of_what_they_have(key: str) -> None:
    value = {"address": "bmc1", "mac": MAC, "serial": "s1"}[key]
    locations = mapping(f"{key},location,name,nid\n{value},x1000c0s3b0n1,n7,7\n")
    nic = Component(id=NIC, kind="nic", macs=(MAC,))
    assert where(locations, found(1, nic)) == Place(location="x1000c0s3b0n1", name="n7", nid=7)
    assert where(locations, found(2)) == Place()


def test_the_switch_that_a_nic_hears_says_where_it_is() -> None:
    locations = mapping("switch,port,location\nLeaf-3,swp7,x1000c0s3b0n1\n")
    nic = Component(id=NIC, kind="nic")
    port = Port(id=f"{NIC}/Ports/1", owner=NIC, neighbour=Neighbour(system="leaf-3", port="SWP7"))
    assert where(locations, found(1, nic, ports=(port,))).location == "x1000c0s3b0n1"


def test_what_a_switch_hears_says_where_the_machine_is() -> None:
    locations = mapping("switch,port,location\nleaf-3,swp7,x1000c0s3b0n1\n")
    switch = Component(id="/sw", kind="switch", name="leaf-3")
    locations.wire([Port(id="/sw/7", owner="/sw", name="swp7", neighbour=Neighbour(chassis=MAC))], {"/sw": switch})
    assert where(locations, found(1, Component(id=NIC, kind="nic", macs=(MAC,)))).location == "x1000c0s3b0n1"


def test_a_topology_in_the_mapping_does_without_lldp() -> None:
    locations = mapping(f"switch,port,mac,location\nleaf-3,swp7,{MAC},\nleaf-3,swp7,,x1000c0s3b0n1\n")
    assert where(locations, found(1, Component(id=NIC, kind="nic", macs=(MAC,)))).location == "x1000c0s3b0n1"


def test_two_that_say_different_things_are_no_answer() -> None:
    locations = mapping(f"mac,serial,location\n{MAC},,x1000c0s3b0n1\n,S1,x1000c0s4b0n1\n")
    place = where(locations, found(1, Component(id=NIC, kind="nic", macs=(MAC,))))
    assert place.location == ""
    assert place.doubt == "mapping line 2 says location x1000c0s3b0n1, mapping line 3 says x1000c0s4b0n1"


def test_two_that_complete_each_other_are_one_answer() -> None:
    locations = mapping(f"mac,serial,location,name\n{MAC},,x1000c0s3b0n1,\n,S1,,n7\n")
    place = where(locations, found(1, Component(id=NIC, kind="nic", macs=(MAC,))))
    assert place == Place(location="x1000c0s3b0n1", name="n7")


def test_a_csv_that_expects_another_machine_is_a_doubt() -> None:
    locations = Locations()
    locations.expect([Candidate(address="https://bmc1", name="n7", serial="S9")])
    assert where(locations, found(1)).doubt == "the CSV expects serial S9 there, and it is S1"


def test_what_is_said_of_a_bmc_is_not_said_of_its_many_machines() -> None:
    locations = mapping("address,location\nhttps://bmc1,x1000c0s3b0n1\n")
    one = found(1)
    machine = one.machines[0].__class__(id="/redfish/v1/Systems/2", address="https://bmc1/redfish/v1/Systems/2")
    assert locations.find(one.address, machine, Parts(), alone=False) == Place()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mac,location\nzz,x1000\n", "line 2, column mac"),
        ("mac,location\n00:11:22:33:44:55,x9z\n", "line 2, column location"),
        ("switch,location\nleaf,x1000\n", "line 2, column port"),
        ("name\nn1\n", "line 2"),
        ("mac,name\n00:11:22:33:44:55,\n", "line 2"),
        ("mac,location\n00:11:22:33:44:55,x1000\n00:11:22:33:44:66,x1000\n", "line 3, column location"),
    ],
)
def test_errors_name_line_and_column(text: str, place: str) -> None:
    with pytest.raises(BadRequest, match=place):
        mapping(text)
