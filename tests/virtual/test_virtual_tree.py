"""The resources of simulated controllers: that they hang together, expand, and are what the schemas say."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant

SCHEMAS = Path(__file__).resolve().parents[3] / "shared" / "redfish" / "csdl"
KINDS = ("n00001", "n00040", "pdu-x1000m0", "cc-x1000c0", "sw-leaf1", "fm-hsn", "sw-spine2")
"""A plain node, one with accelerators, and everything that is not a node."""


@pytest.mark.parametrize("name", KINDS)
async def test_every_link_leads_to_a_resource_with_its_own_path_a_versioned_type_and_a_name(ask, room, name):
    if name.startswith("n"):
        room.bmc(name).log("warning", "Something is warm")
    waiting, seen = ["/redfish/v1/"], {}
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        status, body = await ask(name, "GET", path.removeprefix("/redfish/v1/"))
        assert status == 200, path
        seen[path] = body
        assert body["@odata.id"] == path
        if "Members" in body:
            assert body["Members@odata.count"] == len(body["Members"])
            assert re.fullmatch(r"#(\w+Collection)\.\1", body["@odata.type"]), path
        else:
            assert re.fullmatch(r"#(\w+)\.v\d+_\d+_\d+\.\1", body["@odata.type"]), path
            assert body["Id"] == path.rpartition("/")[2] or path == "/redfish/v1/"
        assert body["Name"]
        waiting += [link for link in _links(body) if "#" not in link]
    assert len(seen) > (60 if name.startswith("n") else 10)


def _links(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["@odata.id"]] if "@odata.id" in value else []
        own += [value["DataSourceUri"]] if "DataSourceUri" in value else []
        return own + [link for item in value.values() for link in _links(item)]
    return [link for item in value for link in _links(item)] if isinstance(value, list) else []


async def test_a_server_is_read_whole_in_a_few_requests(ask):
    _, systems = await ask("n00040", "GET", "Systems?$expand=.($levels=4)")
    (system,) = systems["Members"]
    kinds = [processor["ProcessorType"] for processor in system["Processors"]["Members"]]
    assert kinds == ["CPU"] * 2 + ["GPU"] * 4
    assert len(system["Memory"]["Members"]) == 8
    assert all(dimm["SerialNumber"] for dimm in system["Memory"]["Members"])
    assert [drive["MediaType"] for drive in system["Storage"]["Members"][0]["Drives"]] == ["SSD", "SSD"]
    _, chassis = await ask("n00040", "GET", "Chassis?$expand=.($levels=6)")
    adapters = chassis["Members"][0]["NetworkAdapters"]["Members"]
    heard = [adapter["Ports"]["Members"][0]["Ethernet"]["LLDPReceive"] for adapter in adapters]
    assert [(one["SystemName"], one["PortId"]) for one in heard] == [("sw-leaf2", "15"), ("sw-leaf2", "16")]


async def test_expansion_follows_what_is_below_or_what_is_related_or_both(ask):
    for how, below, related in (("*", True, True), (".", True, False), ("~", False, True)):
        _, system = await ask("n00001", "GET", f"Systems/1?$expand={how}")
        assert ("Members" in system["Memory"]) is below
        assert ("ChassisType" in system["Links"]["Chassis"][0]) is related
    _, deep = await ask("n00001", "GET", "Systems/1?$expand=*($levels=6)")
    assert deep["Links"]["Chassis"][0]["Links"]["ComputerSystems"] == [{"@odata.id": "/redfish/v1/Systems/1"}]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("$expand=.($levels=7)", 400),
        ("$expand=.($levels=0)", 400),
        ("$expand=everything", 400),
        ("$select=Name", 501),
        ("$filter=Id eq '1'", 501),
        ("colour=blue", 200),
    ],
)
async def test_a_query_that_is_not_understood_is_refused_unless_it_is_nobodys(ask, query, status):
    assert (await ask("n00001", "GET", f"Systems?{query}"))[0] == status


async def test_only_gives_the_one_member_and_a_collection_of_more_as_it_is(ask):
    assert (await ask("n00001", "GET", "Systems?only"))[1]["@odata.id"] == "/redfish/v1/Systems/1"
    assert (await ask("n00001", "GET", "Systems/1/Memory?only"))[1]["Members@odata.count"] == 8
    assert (await ask("n00001", "GET", "Systems/1?only"))[0] == 400


# -- parts


async def test_parts_are_the_same_every_time_differ_from_node_to_node_and_can_be_swapped(ask, room):
    async def serials(name: str) -> dict[str, str]:
        _, memory = await ask(name, "GET", "Systems/1/Memory?$expand=.")
        return {dimm["Id"]: dimm["SerialNumber"] for dimm in memory["Members"]}

    one, other = await serials("n00001"), await serials("n00002")
    assert len({*one.values(), *other.values()}) == 16
    assert await serials("n00001") == one
    room.bmc("n00001").swap("Memory/DIMM3")
    after = await serials("n00001")
    assert [name for name in one if one[name] != after[name]] == ["DIMM3"]


async def test_two_nodes_can_be_given_the_same_mac_and_the_switch_hears_it_too(ask, room):
    _, interface = await ask("n00001", "GET", "Systems/1/EthernetInterfaces/eth0")
    room.bmc("n00002").set_mac("NIC1/1", interface["MACAddress"])
    assert (await ask("n00002", "GET", "Systems/1/EthernetInterfaces/eth0"))[1]["MACAddress"] == interface["MACAddress"]
    _, port = await ask("sw-leaf1", "GET", "Fabrics/HSN/Switches/sw-leaf1/Ports/03")
    heard = port["Ethernet"]["LLDPReceive"]
    assert (heard["PortId"], heard["SystemName"]) == (interface["MACAddress"], "n00002")


async def test_two_controllers_whose_cables_were_mixed_up_answer_at_each_others_address(ask, room):
    before = [(await ask(name, "GET", "Systems/1"))[1]["SerialNumber"] for name in ("n00001", "n00002")]
    room.swap_bmcs("n00001", "n00002")
    after = [(await ask(name, "GET", "Systems/1"))[1]["SerialNumber"] for name in ("n00001", "n00002")]
    assert after == before[::-1]
    await ask("n00001", "POST", "Systems/1/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert room.nodes.truth("power", room.nodes.all[:2], 0.0).values() == ["off", "on"]


# -- the schemas


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the schemas are not here; the links are checked all the same")
@pytest.mark.parametrize("name", ["n00040", "pdu-x1000m0", "cc-x1000c0", "fm-hsn"])
async def test_the_service_validator_of_the_dmtf_finds_no_failure(name, tmp_path):
    nodes = SimNodes(40)
    room = BmcServer(nodes, plant=Plant(nodes), by="port")
    await room.start()
    try:
        if name.startswith("n"):
            room.bmc(name).log("critical", "It burns", "OEM.1.0.Fire")
        command = (
            *(Path(sys.executable).with_name("rf_service_validator"), "-u", "root", "-p", "simulated"),
            *("-r", room.url(name), "--authtype", "Basic", "--schema_directory", SCHEMAS, "--skipschema"),
            *("--logdir", tmp_path),
        )
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_CA_BUNDLE")}
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=tmp_path,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await asyncio.wait_for(process.communicate(), 120))[0].decode()
    finally:
        await room.stop()
    passed, failed = re.search(r"\|\s+(\d+)\s+\|\s+\d+\s+\|\s+(\d+)\s+\|", said).groups()
    assert int(passed) > 150
    assert int(failed) == 0, said[-4000:]
