"""PDUs, chassis and switches around simulated nodes: what is off takes the power from what it feeds."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest

from strata.core.xname import parse
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_fleet
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.network import Network
from strata.virtual.plant.plant import Plant

RESET = "Systems/1/Actions/ComputerSystem.Reset"
OUTLET = "PowerEquipment/RackPDUs/1/Outlets/A1"
ENCLOSURE = "Chassis/Enclosure"


async def _outlet(ask, state: str, **more: object) -> int:
    return (await ask("pdu-x1000m0", "POST", f"{OUTLET}/Actions/Outlet.PowerControl", {"PowerState": state}, **more))[0]


async def _chassis(ask, kind: str, **more: object) -> int:
    return (await ask("cc-x1000c0", "POST", f"{ENCLOSURE}/Actions/Chassis.Reset", {"ResetType": kind}, **more))[0]


async def _states(ask) -> tuple[str, str, str]:
    places = (("pdu-x1000m0", OUTLET), ("cc-x1000c0", ENCLOSURE), ("n00001", "Systems/1"))
    return tuple([(await ask(name, "GET", path))[1]["PowerState"] for name, path in places])


async def test_an_outlet_takes_the_power_from_its_chassis_and_nodes_and_nothing_comes_back_by_itself(ask, room):
    for name in ("n00001", "n00033"):
        assert (await ask(name, "POST", RESET, {"ResetType": room.bmc(name).allowed[0]}))[0] == 204
    assert await _states(ask) == ("On", "On", "On")
    assert (await ask("pdu-x1000m0", "GET", OUTLET))[1]["PowerWatts"]["Reading"] > 200
    assert await _outlet(ask, "Off") == 204
    assert await _states(ask) == ("Off", "Off", "Off")
    assert (await ask("pdu-x1000m0", "GET", OUTLET))[1]["PowerWatts"]["Reading"] == 0
    assert (await ask("n00033", "GET", "Systems/1"))[1]["PowerState"] == "On"  # in another chassis

    status, said = await ask("n00001", "POST", RESET, {"ResetType": "On"})
    assert (status, "feeds the node is off" in str(said)) == (500, True)
    assert await _chassis(ask, "On") == 409
    assert await _outlet(ask, "On") == 204
    assert await _states(ask) == ("On", "Off", "Off")
    assert await _chassis(ask, "On") == 204
    assert await _states(ask) == ("On", "On", "Off")
    assert (await ask("n00001", "POST", RESET, {"ResetType": "On"}))[0] == 204
    assert await _states(ask) == ("On", "On", "On")
    assert [(effect.name, effect.mutation) for effect in room.plant.effects] == [
        ("x1000m0p0j1", "power-off"),
        ("x1000m0p0j1", "power-on"),
        ("x1000c0", "power-on"),
    ]


async def test_a_chassis_takes_the_power_from_its_nodes_also_from_one_that_is_starting():
    nodes = SimNodes(33)
    plant = Plant(nodes)
    nodes.act("power-on", nodes.all, now=0.0)
    plant.switch_chassis(0, False, now=1.0)
    assert nodes.truth("power", nodes.all, 100.0).values() == ["off"] * 32 + ["on"]


async def test_a_fence_counts_for_outlets_and_chassis_too(ask, room):
    for fence, status in (("2.5", 204), ("2.5", 412), ("1.9", 412), ("2.6", 204), ("x", 400)):
        more = {"headers": {"X-Strata-Fence": fence}}
        assert await _outlet(ask, "On", **more) == status
        assert await _chassis(ask, "On", **more) == status
    assert room.plant.fenced == 4


@pytest.mark.parametrize("state", [None, "Explode", 7])
async def test_nonsense_changes_nothing(ask, room, state):
    assert await _outlet(ask, state) == 400
    assert await _chassis(ask, state) == 400
    missing = f"{OUTLET[:-2]}A9/Actions/Outlet.PowerControl"
    assert (await ask("pdu-x1000m0", "POST", missing, {"PowerState": "Off"}))[0] == 404
    assert room.plant.effects == []


def test_a_plant_that_begins_off_leaves_every_node_without_power():
    nodes = SimNodes(40, timing=Timing(scale=0))
    plant = Plant(nodes, on=False)
    assert nodes.act("power-on", nodes.all, now=0.0).codes.tolist() == [1] * 40
    assert nodes.watts(nodes.all, 0.0).sum() == 0
    plant.switch_outlet(1, True, now=1.0)
    assert plant.switch_chassis(1, True, now=1.0)
    assert nodes.act("power-on", nodes.all, now=2.0).codes.tolist() == [1] * 32 + [0] * 8


async def test_the_fleet_lists_what_the_server_serves(user):
    nodes = SimNodes(300, timing=Timing(scale=0))
    room = BmcServer(nodes, plant=Plant(nodes))
    await room.start()
    fleet = simulated_fleet(300, bmc_base=room.address)
    assert len({node.uid for node in fleet}) == len({node.name for node in fleet}) == len(fleet) == 300 + 2 * 10
    feeds = {node.name: node for node in fleet if node.role in ("pdu-outlet", "chassis")}
    for node in feeds.values():
        assert parse(node.location).text == node.location
        async with user.get(node.bmc) as reply:
            assert (await reply.json())["Name"] == node.name
    assert feeds["x1001c1"].labels["fed-by"] == "x1001m0p0j2"
    async with user.get(f"{room.address}/fleet/effects") as reply:
        assert (await reply.json())["plant"] == []
    await room.stop()


def test_both_ends_of_every_cable_say_the_same():
    network = Network(100)
    assert network.names == ["sw-leaf1", "sw-leaf2", "sw-leaf3", "sw-leaf4", "sw-spine1", "sw-spine2"]
    for name in network.names:
        for number, far in network.ports(name).items():
            if far.switch:
                back = network.ports(far.switch)[far.port]
                assert (back.switch, back.port) == (name, number)
    nodes = [(far.node, far.adapter) for name in network.names for far in network.ports(name).values() if far.node >= 0]
    assert sorted(nodes) == [(node, f"NIC{i}") for node in range(100) for i in (1, 2)]


async def test_the_fabric_manager_links_the_switches_that_each_switch_only_hears_of(ask):
    up = "Fabrics/HSN/Switches/sw-leaf2/Ports/66"
    _, port = await ask("fm-hsn", "GET", up)
    spine = "/redfish/v1/Fabrics/HSN/Switches/sw-spine2"
    assert port["Links"]["ConnectedSwitches"] == [{"@odata.id": spine}]
    assert port["Links"]["ConnectedSwitchPorts"] == [{"@odata.id": f"{spine}/Ports/02"}]
    _, alone = await ask("sw-leaf2", "GET", up)
    assert alone["Links"] == {}
    assert alone["Ethernet"] == port["Ethernet"]
    assert alone["Ethernet"]["LLDPReceive"]["SystemName"] == "sw-spine2"


@pytest.mark.server
@pytest.mark.slow
async def test_the_command_serves_a_machine_room_that_begins_off_over_tls(user):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strata.virtual.bmc.server", "--nodes", "8", "--pdus", "off", "--tls"),
        *("--ssdp", "127.0.0.1", "--ssdp-port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert said["address"].startswith("https://")
        async with user.get(f"{said['address']}/bmc/pdu-x1000m0/redfish/v1/{OUTLET}", ssl=False) as reply:
            assert (await reply.json())["PowerState"] == "Off"
    finally:
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
