"""Several nodes behind one BMC: what is capped, read, lit and updated is the node that was asked for."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc.caps import whole
from strata.hardware.bmc.protocol import ServiceSettings
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.discovery.crawl import crawl
from strata.hardware.inventory.changes import machine_of
from strata.power.telemetry.redfish import make_plan, read_plan
from support.cray_blade import LEAST, MOST, NODES, ROOT, CrayBlade, link
from support.odd_bmc import OddBmc, only_system

OTHERWISE = {"Node0": "BladeA", "Node1": "BladeB", "Node2": "BladeC", "Node3": "BladeD"}
"""Chassis that are not called as their nodes are."""


@pytest.fixture
async def client() -> AsyncIterator[RedfishClient]:
    async with RedfishClient(Credentials("root", "x")) as found:
        yield found


async def cap(controller: RedfishBmc, watts: float | None) -> str:
    """Cap the node as a whole; where that was."""
    limit = whole(await controller.power_limits(), controller.address)
    assert limit is not None
    await controller.set_power_limit(limit.id, watts)
    return limit.id.partition("#")[0]


def tie(blade: CrayBlade, how: str) -> None:
    """Have the blade say which chassis is whose."""
    for name, chassis in blade.chassis.items():
        system, place = blade.resources[f"{ROOT}/Systems/{name}"], blade.resources[f"{ROOT}/Chassis/{chassis}"]
        if how == "system":
            system["Links"]["Chassis"] = [link("Chassis", "Enclosure"), link("Chassis", chassis)]
        elif how == "chassis":
            place["Links"]["ComputerSystems"] = [link("Systems", name)]
            place["Links"]["ContainedBy"] = link("Chassis", "Enclosure")
        elif how == "manager":
            system["Links"]["ManagedBy"] = [link("Managers", f"M-{name}")]
            place["Links"]["ManagedBy"] = [link("Managers", f"M-{name}")]


# -- caps


@pytest.mark.parametrize("controls", [True, False])
async def test_a_cap_of_one_node_of_a_blade_changes_that_node_alone(client: RedfishClient, controls: bool) -> None:
    async with CrayBlade(controls=controls) as blade:
        controller = RedfishBmc(client, blade.node(1))
        where = await cap(controller, 500)
        assert where == f"{ROOT}/Chassis/Node1/" + ("Controls/NodePowerLimit" if controls else "Power")
        assert blade.changed == {where}
        assert [blade.cap(place) for place in range(4)] == [None, 500, None, None]
        seen = whole(await controller.power_limits(), blade.address)
        assert seen is not None and (seen.watts, seen.least, seen.most) == (500, LEAST, MOST)
        await cap(controller, None)
        assert blade.cap(1) is None


@pytest.mark.parametrize("how", ["system", "chassis", "manager"])
async def test_a_chassis_of_another_name_is_found_by_the_links_of_either_side(client: RedfishClient, how: str) -> None:
    async with CrayBlade(names=OTHERWISE) as blade:
        tie(blade, how)
        for place in (2, 1):
            await cap(RedfishBmc(client, blade.node(place)), 500 + place)
        assert [blade.cap(place) for place in range(4)] == [None, 501, 502, None]
        assert blade.changed == {f"{ROOT}/Chassis/{name}/Controls/NodePowerLimit" for name in ("BladeB", "BladeC")}


@pytest.mark.parametrize("names", [OTHERWISE, OTHERWISE | {"Node1": "Node1"}])
async def test_without_a_link_or_a_name_nothing_is_guessed_and_nothing_changed(
    client: RedfishClient, names: dict[str, str]
) -> None:
    """That one of four is called as its node is may be chance."""
    async with CrayBlade(names=names) as blade:
        controller = RedfishBmc(client, blade.node(1))
        tried = (
            controller.power_limits(),
            controller.set_power_limit(f"{ROOT}/Chassis/{names['Node1']}/Controls/NodePowerLimit", 500),
            controller.readings(),
            controller.identify(True),
            make_plan(client, client.target(blade.node(1))),
        )
        for attempt in tried:
            with pytest.raises(NotOffered, match="which chassis is that of Systems/Node1") as refused:
                await attempt
            assert "Chassis/BladeA" in str(refused.value) and "Chassis/Enclosure" in str(refused.value)
            assert "component of its own" in refused.value.hint
        assert blade.changed == set()
        assert (await controller.log())[0].message == "a node came up", "what needs no chassis is told all the same"
        assert await controller.power() == "on"


async def test_what_was_unclear_is_looked_at_again(client: RedfishClient) -> None:
    async with CrayBlade(names=OTHERWISE) as blade:
        controller = RedfishBmc(client, blade.node(1))
        with pytest.raises(NotOffered):
            await controller.power_limits()
        tie(blade, "chassis")
        await cap(controller, 500)
        assert blade.cap(1) == 500


async def test_a_neighbours_cap_is_not_a_nodes_whatever_id_is_given(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        controller = RedfishBmc(client, blade.node(1))
        for other in ("Node0", "Enclosure", "Node"):
            with pytest.raises(BadRequest, match="not a power limit of this node"):
                await controller.set_power_limit(f"{ROOT}/Chassis/{other}/Controls/NodePowerLimit", 500)
        assert blade.changed == set()


async def test_the_cap_of_an_enclosure_is_not_given_to_a_node_in_it(client: RedfishClient) -> None:
    async with CrayBlade(names=OTHERWISE) as blade:
        for name in NODES:
            blade.resources[f"{ROOT}/Systems/{name}"]["Links"]["Chassis"] = [link("Chassis", "Enclosure")]
        controller = RedfishBmc(client, blade.node(1))
        with pytest.raises(NotOffered, match="that of Chassis/Enclosure is for several nodes"):
            await controller.power_limits()
        with pytest.raises(BadRequest, match="others have it"):
            await controller.set_power_limit(f"{ROOT}/Chassis/Enclosure/Controls/PowerLimit", 500)
        with pytest.raises(NotOffered, match="Chassis/Enclosure also holds other nodes"):
            await controller.identify(True)
        assert blade.changed == set()
        enclosure = RedfishBmc(client, f"{blade.address}{ROOT}/Chassis/Enclosure")
        assert await cap(enclosure, 900) == f"{ROOT}/Chassis/Enclosure/Controls/PowerLimit"


async def test_an_enclosure_with_one_power_for_all_says_by_related_items_whose_an_entry_is(
    client: RedfishClient,
) -> None:
    """A place in the list that is no object is a place all the same."""
    async with CrayBlade() as blade:
        entries: list[Any] = [None]
        for name in NODES:
            blade.resources[f"{ROOT}/Systems/{name}"]["Links"]["Chassis"] = [link("Chassis", "Enclosure")]
            entries.append(
                {
                    "Name": f"{name} Power Control", "PowerConsumedWatts": 300 + len(entries),
                    "PowerLimit": {"LimitInWatts": None}, "RelatedItem": [link("Systems", name)],
                }
            )  # fmt: skip
        every = {"RelatedItem": [link("Systems", name) for name in NODES], "PowerLimit": {"LimitInWatts": 900}}
        blade.resources[f"{ROOT}/Chassis"]["Members"] = [link("Chassis", "Enclosure")]
        del blade.resources[f"{ROOT}/Chassis/Enclosure"]["Controls"]
        power = f"{ROOT}/Chassis/Enclosure/Power"
        blade.resources[power] = {"@odata.id": power, "PowerControl": [*entries, every]}
        controller = RedfishBmc(client, blade.node(1))
        assert await cap(controller, 500) == power
        told = blade.resources[power]["PowerControl"]
        assert [one and one["PowerLimit"]["LimitInWatts"] for one in told] == [None, None, 500, None, None, 900]
        for place in (1, 5, 0, 9):
            with pytest.raises((BadRequest, NotOffered)):
                await controller.set_power_limit(f"{power}#/PowerControl/{place}", 500)
        target = client.target(blade.node(1))
        values, _ = await read_plan(client, target, await make_plan(client, target), slow=True)
        assert (values["power"], values["cap"]) == (302, 500)
        assert [reading.value for reading in await controller.readings()] == [302]


# -- what is measured


async def test_the_readings_and_the_power_of_a_node_are_its_own(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        for place in (2, 0):
            controller = RedfishBmc(client, blade.node(place))
            assert [(one.name, one.value) for one in await controller.readings()] == [("CPU Temp", 50 + place)]
            await controller.identify(True)
            assert blade.resources[f"{ROOT}/Chassis/Node{place}"]["LocationIndicatorActive"] is True
            target = client.target(blade.node(place))
            values, _ = await read_plan(client, target, await make_plan(client, target), slow=True)
            assert values == {"power": 400 + place, "supply": 900, "cap": 0, "least": LEAST, "most": MOST,
                              "temperature": 50 + place}  # fmt: skip
        assert blade.resources[f"{ROOT}/Chassis/Enclosure"]["LocationIndicatorActive"] is False


async def test_of_a_shared_chassis_a_node_is_told_what_is_its_own_and_what_serves_all(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        base = f"{ROOT}/Chassis/Enclosure/Sensors"
        sensors: dict[str, dict[str, Any]] = {
            "Own": {"Name": "CPU B", "ReadingType": "Temperature", "RelatedItem": [link("Systems", "Node1", "CPU")]},
            "Other": {"Name": "CPU A", "ReadingType": "Temperature", "RelatedItem": [link("Systems", "Node0")]},
            "Whose": {"Name": "CPU C", "ReadingType": "Temperature", "PhysicalContext": "CPU"},
            "Fan": {"Name": "Fan 1", "ReadingType": "Rotational"},
            "Air": {"Name": "Inlet", "ReadingType": "Temperature", "PhysicalContext": "Intake"},
            "All": {"Name": "Total", "ReadingType": "Power", "PhysicalContext": "Chassis"},
        }  # fmt: skip
        blade.resources[f"{ROOT}/Chassis/Enclosure"]["Sensors"] = {"@odata.id": base}
        blade.resources[base] = {"Members": [{"@odata.id": f"{base}/{name}"} for name in sensors]}
        blade.resources |= {f"{base}/{name}": {"Reading": 40, **body} for name, body in sensors.items()}
        for name in NODES:
            blade.resources[f"{ROOT}/Systems/{name}"]["Links"]["Chassis"] = [link("Chassis", "Enclosure")]
        found = await RedfishBmc(client, blade.node(1)).readings()
        assert {one.name for one in found} == {"CPU Temp", "CPU B", "Fan 1", "Inlet"}


async def test_a_system_that_cannot_be_read_does_not_make_its_enclosure_another_ones_own(client: RedfishClient) -> None:
    async with CrayBlade(names=OTHERWISE) as blade:
        for name in NODES:
            blade.resources[f"{ROOT}/Systems/{name}"]["Links"]["Chassis"] = [link("Chassis", "Enclosure")]
        for name in ("Node0", "Node2", "Node3"):
            blade.resources[f"{ROOT}/Systems/{name}"] = []
        with pytest.raises(NotOffered, match="for several nodes"):
            await RedfishBmc(client, blade.node(1)).power_limits()


# -- the manager


async def test_an_auxiliary_bmc_that_is_listed_first_is_not_the_bmc(client: RedfishClient) -> None:
    """Nothing links to a manager. What is asked goes to the BMC, and no other maker's strategy is used on it."""
    async with CrayBlade() as blade:
        blade.resources[f"{ROOT}/Managers"]["Members"].insert(0, link("Managers", "Aux"))
        blade.resources[f"{ROOT}/Managers/Aux"] = {
            "@odata.id": f"{ROOT}/Managers/Aux", "Id": "Aux", "ManagerType": "AuxiliaryController", "Model": "iLO 5",
            "FirmwareVersion": "aux 0.1", "Oem": {"Hpe": {}},
        }  # fmt: skip
        controller = RedfishBmc(client, blade.node(1))
        identity = await controller.identity()
        assert (identity.firmware, identity.quirks) == ("nc.1.9.9", ())
        assert [entry.message for entry in await controller.log()] == ["a node came up"]
        assert await controller.settings() == ServiceSettings(ntp=("10.0.0.1",), syslog=None)
        found = await crawl(client, blade.address)
        assert found.identity.firmware == "nc.1.9.9"


@pytest.mark.parametrize(
    ("link_to", "more", "chosen"),
    [
        (["A", "B"], {}, "B"),
        ([], {"A": {"Links": {"ManagerForServers": [{"@odata.id": f"{ROOT}/Systems/2"}]}}}, "B"),
        ([], {"A": {"ManagerType": "BMC"}, "B": {"ManagerType": "EnclosureManager"}}, "A"),
        ([], {"A": {"ManagerType": "BMC", "ServiceEntryPointUUID": "U-1"}, "B": {"ManagerType": "BMC"}}, "A"),
        ([], {"B": {"ManagerType": "BMC", "NetworkProtocol": None}}, "B"),
        ([], {"A": {"ManagerType": "BMC"}, "B": {"ManagerType": "BMC"}}, ""),
    ],
)
async def test_the_manager_is_chosen_by_what_it_says_or_not_at_all(
    client: RedfishClient, link_to: list[str], more: dict[str, dict[str, Any]], chosen: str
) -> None:
    types = {"A": "AuxiliaryController", "B": "BMC"}
    managers: dict[str, dict[str, Any]] = {}
    for name, kind in types.items():
        own = f"{ROOT}/Managers/{name}"
        managers[own] = {"ManagerType": kind, "FirmwareVersion": name, "NetworkProtocol": {"@odata.id": f"{own}/Net"}}
        managers[own] |= more.get(name, {})
        managers[f"{own}/Net"] = {"NTP": {"NTPServers": [name]}}
        if managers[own]["NetworkProtocol"] is None:
            del managers[own]["NetworkProtocol"]
    links = {"Links": {"ManagedBy": [link("Managers", name) for name in link_to]}}
    members = {"Members": [link("Managers", name) for name in types]}
    resources = {ROOT: {"UUID": "u-1"}, **only_system(**links), f"{ROOT}/Managers": members, **managers}
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        if not chosen:
            assert (await controller.identity()).firmware == ""
            with pytest.raises(NotOffered, match="which manager answers for Systems/1: it has Managers/A, Managers/B"):
                await controller.settings()
            return
        assert (await controller.identity()).firmware == chosen
        if "NetworkProtocol" in managers[f"{ROOT}/Managers/{chosen}"]:
            assert (await controller.settings()).ntp == (chosen,)
        else:
            with pytest.raises(NotOffered, match="no network settings"):
                await controller.settings()


async def test_of_two_alike_the_manager_that_has_what_is_asked_for_is_asked(client: RedfishClient) -> None:
    members = {"Members": [link("Managers", name) for name in ("A", "B")]}
    network = f"{ROOT}/Managers/B/Net"
    resources = {
        **only_system(),
        f"{ROOT}/Managers": members,
        f"{ROOT}/Managers/A": {"ManagerType": "BMC"},
        f"{ROOT}/Managers/B": {"ManagerType": "BMC", "NetworkProtocol": {"@odata.id": network}},
        network: {"NTP": {"NTPServers": ["b"]}},
    }
    async with OddBmc(resources) as bmc:
        assert (await RedfishBmc(client, bmc.address).settings()).ntp == ("b",)


@pytest.mark.parametrize(
    ("root", "manager", "system", "quirks"),
    [
        ({}, {"Manufacturer": "HPE", "Model": "nC"}, "HPE", ()),
        ({"Vendor": "HPE"}, {"Manufacturer": "Cray"}, "HPE", ()),
        ({"Vendor": "HPE"}, {"FirmwareVersion": "iLO 5 v2.44"}, "HPE", ("syslog-ilo",)),
        ({}, {"Model": "iLO 4", "Oem": {"Hp": {}}}, "Contoso", ("syslog-ilo",)),
        ({}, {"Id": "iDRAC.Embedded.1", "Model": "14G Monolithic"}, "Dell Inc.", ("syslog-idrac",)),
        ({}, {"Manufacturer": "OpenBMC"}, "Dell Inc.", ("console0",)),
        ({}, {"Manufacturer": "Contoso"}, "Supermicro", ()),
        ({}, {}, "Supermicro", ("echo-boot-mode", "usb-cd")),
    ],
)
async def test_a_strategy_is_for_who_made_the_bmc_and_not_for_who_made_the_machine(
    client: RedfishClient, root: dict[str, Any], manager: dict[str, Any], system: str, quirks: tuple[str, ...]
) -> None:
    managed = {"Links": {"ManagedBy": [link("Managers", "1")]}}
    resources = {ROOT: root, **only_system(Manufacturer=system, **managed), f"{ROOT}/Managers/1": manager}
    async with OddBmc(resources) as bmc:
        assert (await RedfishBmc(client, bmc.address).identity()).quirks == quirks


# -- drives, firmware, inventory


async def test_the_bmcs_only_drive_is_not_given_to_one_of_four_nodes(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        drives = f"{ROOT}/Managers/BMC/VirtualMedia"
        blade.resources[f"{ROOT}/Managers/BMC"]["VirtualMedia"] = {"@odata.id": drives}
        blade.resources[drives] = {"Members": [{"@odata.id": f"{drives}/CD"}]}
        blade.resources[f"{drives}/CD"] = {"@odata.id": f"{drives}/CD", "MediaTypes": ["CD"], "Image": None}
        with pytest.raises(NotOffered, match="the BMC's own, which also has Systems/Node0"):
            await RedfishBmc(client, blade.node(1)).insert_media("http://10.0.0.1/x.iso")
        assert blade.changed == set()


async def test_the_firmware_of_another_node_is_neither_shown_nor_updated(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        update, stock = f"{ROOT}/UpdateService", f"{ROOT}/UpdateService/FirmwareInventory"
        blade.resources[update] = {
            "FirmwareInventory": {"@odata.id": stock},
            "Actions": {"#UpdateService.SimpleUpdate": {"target": f"{update}/Actions/SimpleUpdate"}},
        }
        names = {"BMC": [], "Node0.BIOS": [link("Systems", "Node0", "Bios")], "Node1.BIOS": [link("Systems", "Node1")]}
        blade.resources[stock] = {"Members": [{"@odata.id": f"{stock}/{name}"} for name in names]}
        for name, related in names.items():
            path = f"{stock}/{name}"
            blade.resources[path] = {"@odata.id": path, "Id": name, "Version": "1", "RelatedItem": related}
        controller = RedfishBmc(client, blade.node(1))
        found = {one.name: one.component for one in await controller.firmware()}
        assert found == {"BMC": "", "Node1.BIOS": f"{ROOT}/Systems/Node1"}
        for one in (f"{stock}/Node0.BIOS", f"{ROOT}/Systems/Node0", f"{ROOT}/Chassis/Node0"):
            with pytest.raises(BadRequest, match="in another node"):
                await controller.update_firmware(uri="http://10.0.0.1/x", targets=[one])
        assert not blade.sent("POST", f"{update}/Actions/SimpleUpdate")
        await controller.update_firmware(uri="http://10.0.0.1/x", targets=[f"{stock}/Node1.BIOS", f"{stock}/BMC"])
        assert len(blade.sent("POST", f"{update}/Actions/SimpleUpdate")) == 1


async def test_discovery_gives_each_node_of_a_blade_its_own_parts(client: RedfishClient) -> None:
    async with CrayBlade() as blade:
        found = await crawl(client, blade.address)
        parts = {part.id: part for part in found.components}
        for place in range(4):
            nic = parts[f"{ROOT}/Chassis/Node{place}/NetworkAdapters/HPCNet0"]
            assert machine_of(nic, parts, found.machines) == blade.node(place)
            assert parts[f"{ROOT}/Systems/Node{place}"].parent == f"{ROOT}/Chassis/Node{place}"
        enclosure = parts[f"{ROOT}/Chassis/Enclosure"]
        assert machine_of(enclosure, parts, found.machines) == ""


async def test_a_blade_that_lists_its_chassis_in_another_order_is_no_stranger(client: RedfishClient) -> None:
    seen = set()
    async with CrayBlade() as blade:
        for seed in range(4):
            random.Random(seed).shuffle(blade.resources[f"{ROOT}/Chassis"]["Members"])
            found = await crawl(client, blade.address)
            seen.add((found.identity.serial, found.identity.vendor, found.identity.firmware))
    assert seen == {("HA18340007", "HPE", "nc.1.9.9")}


async def test_a_failed_supply_of_the_enclosure_is_seen_by_its_nodes_and_its_watts_are_nobodys(
    client: RedfishClient,
) -> None:
    async with CrayBlade() as blade:
        for name in NODES:
            blade.resources[f"{ROOT}/Systems/{name}"]["Links"]["Chassis"] = [link("Chassis", "Enclosure")]
        place = f"{ROOT}/Chassis/Enclosure"
        blade.resources[place]["Power"] = link("Chassis", "Enclosure", "Power")
        blade.resources[f"{place}/Power"] = {
            "@odata.id": f"{place}/Power",
            "PowerSupplies": [
                {"Name": "Rectifier", "MemberId": str(i), "PowerInputWatts": 9000.0, "Status": {"Health": health}}
                for i, health in enumerate(("OK", "Critical"))
            ],
        }
        shown = {one.name: one for one in await RedfishBmc(client, blade.node(1)).readings()}
    assert (shown["Rectifier (1)"].health, shown["Rectifier (1)"].value) == ("critical", None)
    assert (shown["Rectifier (0)"].health, shown["Rectifier (0)"].value) == ("ok", None)
