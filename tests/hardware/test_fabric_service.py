"""The cables of a simulated machine, from what its inventory knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import NotFound, Unavailable
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.hardware.discovery.crawl import crawl
from strata.hardware.fabric.service import FabricService, cabling
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.store import Inventory
from support.simulated_machine import SimulatedMachine, simulated_machine

pytestmark = pytest.mark.slow

NODES = 40


async def recorded(machine: SimulatedMachine, *names: str) -> Inventory:
    """An inventory of these controllers."""
    inventory = Inventory(machine.service.controller.store)
    await inventory.start()
    redfish = machine.bmcs.redfish
    await inventory.record([await crawl(redfish, f"{machine.server.address}/bmc/{name}") for name in names])
    return inventory


def fabric_of(machine: SimulatedMachine, inventory: Inventory, file: Path | None = None) -> FabricService:
    """Over this inventory."""
    nodes = NodesByBmc(machine.service.registry)
    return FabricService(machine.service, lambda: cabling(inventory), nodes.at, file=file)


async def test_the_graph_is_what_switches_and_nodes_say(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, NODES, on=True) as machine:
        inventory = await recorded(machine, *machine.plant.network.names, *machine.nodes.names)
        fabric = fabric_of(machine, inventory)
        view = await fabric.graph(LOCAL_ADMIN)
        on = {switch.id: switch.nodes for switch in view.switches}
        assert on["sw-leaf1"] == "n[00001-00032]" and on["sw-leaf2"] == "n[00033-00040]" and on["sw-spine1"] == ""
        assert view.conflicts == () and {link.source for link in view.links} == {"lldp"}
        assert len(view.links) == 2 * NODES + 2 * 2, "two NICs a node, and each leaf to each spine"
        near = await fabric.near(LOCAL_ADMIN, "n[00031-00034]")
        assert [(item.switch, item.nodes) for item in near] == [
            ("sw-leaf1", "n[00031-00032]"),
            ("sw-leaf2", "n[00033-00034]"),
        ]
        await inventory.stop()


async def test_switches_that_tell_nothing_are_known_by_the_nodes_that_hear_them(tmp_path: Path) -> None:
    wires = tmp_path / "wires.csv"
    wires.write_text("switch,port,node,nic\nsw-leaf1,01,n00001,\nsw-leaf1,03,n00009,\n")
    async with simulated_machine(tmp_path, NODES, on=True) as machine:
        inventory = await recorded(machine, *machine.nodes.names)
        heard = await fabric_of(machine, inventory).graph(LOCAL_ADMIN)
        assert [switch.nodes for switch in heard.switches] == ["n[00001-00032]", "n[00033-00040]"]
        fabric = fabric_of(machine, inventory, wires)
        view = await fabric.graph(LOCAL_ADMIN)
        assert [switch.nodes for switch in view.switches] == ["n[00001-00032]", "n[00033-00040]"]
        assert view.conflicts == ("sw-leaf1:03: the topology file says n00009:?, n00002:NIC1 is heard",)
        wires.unlink()
        with pytest.raises(Unavailable, match=r"wires\.csv"):
            await fabric_of(machine, inventory, wires).graph(LOCAL_ADMIN)
        await inventory.stop()


async def test_nobody_sees_nodes_beyond_its_scope(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, NODES, on=True) as machine:
        service = machine.service
        await service.edits.put_group("mine", service.registry.select("n00001"), "test")
        await service.settled(await service.controller.store.revision())
        inventory = await recorded(machine, *machine.plant.network.names, *machine.nodes.names)
        fabric = fabric_of(machine, inventory)
        me = Principal(name="me", role="viewer", scope=("mine",))
        view = await fabric.graph(me)
        assert [switch.nodes for switch in view.switches if switch.nodes] == ["n00001"]
        assert not any("n00002" in f"{link.a} {link.b}" for link in view.links)
        with pytest.raises(NotFound):
            await fabric.near(me, "n00002")
        await inventory.stop()
