"""Nodes as computer systems: what they show, and what is done to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from machine_support import ROOT, MachineService, get, machine_service, members
from msgspec.structs import replace

from strata.core.state import State
from strata.engine.progress import Phase
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.nodes.records import NodeView
from strata.fleet.nodes.service import NodeService
from strata.fleet.operations.service import OperationService
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.protocol import Reading
from strata.hardware.bmc.records import NodeReadings
from strata.hardware.bmc.service import BmcService
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.events.hub import EventHub
from strata.hardware.fabric.service import FabricService
from strata.hardware.inventory.records import NodeHardware
from strata.hardware.inventory.service import InventoryService
from strata.virtual.bmc.mischief import Trick
from strata.virtual.redfish.hardware import CORES, CPUS, DIMM_MIB, DIMMS

N0 = f"{ROOT}/Systems/n000"
RESET = f"{N0}/Actions/ComputerSystem.Reset"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MachineService]:
    async with machine_service(tmp_path) as found:
        yield found


async def test_the_systems_are_the_nodes_and_listing_them_asks_no_controller(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    assert members(await get(client, "Systems")) == [f"n{i:03d}" for i in range(6)]
    assert service.bmcs.requests == 0


async def test_expanding_or_filtering_systems_asks_no_controller_either(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.see("n003", "on")
    found = await get(client, "Systems?$filter=PowerState eq 'On'&$expand=.")
    assert [item["Id"] for item in found["Members"]] == ["n003"]
    assert service.bmcs.requests == 0


async def test_a_system_shows_what_it_is_made_of(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.discover("n000")
    found = await get(client, N0)
    assert (found["Manufacturer"], found["BiosVersion"]) == ("Contoso", "2.1.0")
    assert found["SerialNumber"] == (await service.of(InventoryService).of_node(LOCAL_ADMIN, "n000")).serial
    assert found["ProcessorSummary"] == {
        "Count": CPUS, "Model": "Xeon Platinum 8480+", "CoreCount": CPUS * CORES,
        "LogicalProcessorCount": CPUS * CORES * 2,
    }  # fmt: skip
    assert found["MemorySummary"]["TotalSystemMemoryGiB"] == DIMMS * DIMM_MIB / 1024
    assert members(await get(client, f"{N0}/Processors")) == ["CPU1", "CPU2"]
    assert (await get(client, f"{N0}/Processors/CPU1"))["InstructionSet"] == "x86-64"
    memory = members(await get(client, f"{N0}/Memory"))
    assert len(memory) == DIMMS
    assert (await get(client, f"{N0}/Memory/{memory[0]}"))["CapacityMiB"] == DIMM_MIB


async def test_every_address_of_a_card_is_one_interface(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.discover("n000")
    found = await get(client, f"{N0}/EthernetInterfaces")
    addresses = [(await get(client, link["@odata.id"]))["MACAddress"] for link in found["Members"]]
    assert len(addresses) == len(set(addresses)) == 2


async def test_a_drive_is_in_the_storage_that_its_controller_named_or_in_one_of_its_own(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.discover("n000")
    inventory = service.of(InventoryService)
    real = inventory.of_node

    async def of_node(who: Principal, node: str) -> NodeHardware:
        """One drive more, below no storage controller."""
        found = await real(who, node)
        drive = next(one for one in found.components if one.kind == "drive")
        loose = replace(drive, id="/redfish/v1/Chassis/1/Drives/9", parent="", name="9")
        return replace(found, components=(*found.components, loose))

    monkeypatch.setattr(inventory, "of_node", of_node)
    assert members(await get(client, f"{N0}/Storage")) == ["1", "Drives"]
    for store in ("1", "Drives"):
        for link in (await get(client, f"{N0}/Storage/{store}"))["Drives"]:
            whole = await get(client, link["@odata.id"])
            assert whole["Links"]["Storage"]["@odata.id"] == f"{N0}/Storage/{store}"


async def test_a_system_that_was_not_discovered_is_whole_and_says_what_is_not_known(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    found = await get(client, N0)
    assert (found["SerialNumber"], found["UUID"], found["ProcessorSummary"]["Count"]) == (None, None, None)
    assert found["Links"]["ManagedBy"] == [{"@odata.id": f"{ROOT}/Managers/strata"}]
    for part in ("Processors", "Memory", "Storage", "EthernetInterfaces"):
        assert (await get(client, f"{N0}/{part}"))["Members@odata.count"] == 0


@pytest.mark.parametrize(
    ("power", "mutation", "shown", "state"),
    [
        ("on", "", "On", "Enabled"),
        ("off", "", "Off", "StandbyOffline"),
        ("unknown", "", None, None),
        ("off", "power-on", "PoweringOn", "StandbyOffline"),
        ("on", "power-off", "PoweringOff", "Enabled"),
    ],
)
async def test_power_is_what_was_seen_and_null_where_nobody_knows(
    service: MachineService, client: httpx.AsyncClient, power: str, mutation: str, shown: str | None, state: str | None
) -> None:
    name = "n000"
    if power == "unknown":
        name = "unseen"
        await service.put_node(name)
    else:
        await service.see(name, power)
    if mutation:
        engine, index = service.service.controller.engine, service.service.registry.index_of(name)
        engine.progress.phase[index] = Phase.ACTING
        engine.progress.mutation[index] = list(engine.model.mutations).index(mutation)
    found = await get(client, f"Systems/{name}")
    assert (found["PowerState"], found["Status"]["State"]) == (shown, state)


async def test_open_alerts_and_faults_are_its_health(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("n000", "n001", "n002"):
        await service.see(node, "on")
    await service.put_node("unseen")
    nodes = service.of(NodeService)
    real = nodes.node

    async def node(who: Principal, name: str) -> NodeView:
        found = await real(who, name)
        return replace(found, state="faulted") if name == "n002" else found

    monkeypatch.setattr(nodes, "node", node)
    service.alert("n001")
    await service.of(EventHub).alerts.settled()
    health = [(await get(client, f"Systems/{name}"))["Status"]["Health"] for name in ("n000", "n001", "n002", "unseen")]
    assert health == ["OK", "Warning", "Critical", None]


async def test_a_controller_that_is_slow_or_dead_does_not_keep_its_system_from_being_shown(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.api.redfish.resources.live.PATIENCE", 0.01)
    service.bmcs.prank("n000").plan(Trick.SILENT, times=100)
    await service.lose_bmc("n001")
    for node in ("n000", "n001"):
        boot = (await get(client, f"Systems/{node}"))["Boot"]
        assert (boot["BootSourceOverrideTarget"], boot["BootSourceOverrideEnabled"]) == (None, None)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("On", []), ("ForceOff", []), ("GracefulShutdown", []), ("ForceRestart", ["PowerCycle"]),
     ("GracefulRestart", ["GracefulRestart"]), ("PowerCycle", ["PowerCycle"]), ("Nmi", ["Nmi"])],
)  # fmt: skip
async def test_every_reset_that_is_offered_is_done(
    service: MachineService, client: httpx.AsyncClient, kind: str, told: list[str]
) -> None:
    await service.see("n000", "on")
    offered = (await get(client, N0))["Actions"]["#ComputerSystem.Reset"]
    assert kind in offered["ResetType@Redfish.AllowableValues"]
    answer = await client.post(offered["target"], json={"ResetType": kind})
    assert (answer.status_code, answer.content) == (204, b"")
    assert service.bmcs.bmc("n000").resets == told


@pytest.mark.parametrize(("kind", "power"), [("On", "on"), ("ForceOff", "off")])
async def test_on_and_off_become_desires(
    service: MachineService, client: httpx.AsyncClient, kind: str, power: str
) -> None:
    await client.post(RESET, json={"ResetType": kind})
    assert (await service.service.node(LOCAL_ADMIN, "n000")).desires["power"].values == (power,)


async def test_a_brake_is_told_and_nothing_is_done(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.see("n000", "on")
    await service.service.freeze(LOCAL_ADMIN, "node:n000", "cooling works")
    answer = await client.post(RESET, json={"ResetType": "PowerCycle"})
    assert answer.status_code == 409
    assert "frozen" in answer.json()["error"]["message"]
    assert service.bmcs.bmc("n000").resets == []


async def test_a_reset_that_becomes_an_operation_is_a_task(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.hardware.bmc.service.AT_ONCE", 0)
    answer = await client.post(RESET, json={"ResetType": "PowerCycle"})
    assert answer.status_code == 202
    (begun,) = (await service.of(OperationService).operations(LOCAL_ADMIN, 10, "")).items
    assert answer.headers["location"].endswith(f"/{begun.id}")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({}, "ActionParameterMissing"),
        ({"ResetType": "Explode"}, "ActionParameterValueNotInList"),
        ({"ResetType": 1}, "ActionParameterValueTypeError"),
        ({"ResetType": "On", "Now": True}, "ActionParameterUnknown"),
    ],
)
async def test_a_reset_that_cannot_be_understood_says_why(
    service: MachineService, client: httpx.AsyncClient, body: dict[str, object], key: str
) -> None:
    answer = await client.post(RESET, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].endswith(key)
    assert service.bmcs.requests == 0


@pytest.mark.parametrize(
    ("boot", "shown"),
    [
        ({"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}, ("Pxe", "Once", "UEFI")),
        (
            {"BootSourceOverrideTarget": "UefiHttp", "BootSourceOverrideEnabled": "Continuous",
             "HttpBootUri": "http://b/x.efi", "BootSourceOverrideMode": "UEFI"},
            ("UefiHttp", "Continuous", "UEFI"),
        ),
        ({"BootSourceOverrideTarget": "Hdd"}, ("Hdd", "Once", "UEFI")),
        ({"BootSourceOverrideEnabled": "Disabled"}, ("None", "Disabled", "UEFI")),
    ],
)  # fmt: skip
async def test_what_the_boot_override_is_set_to_is_seen_at_once(
    client: httpx.AsyncClient, boot: dict[str, str], shown: tuple[str, str, str | None]
) -> None:
    await get(client, N0)
    assert (await client.patch(N0, json={"Boot": boot})).status_code == 204
    found = (await get(client, N0))["Boot"]
    assert (
        found["BootSourceOverrideTarget"],
        found["BootSourceOverrideEnabled"],
        found["BootSourceOverrideMode"],
    ) == shown
    assert found["HttpBootUri"] == boot.get("HttpBootUri")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"Boot": {"BootSourceOverrideTarget": "Floppy"}}, "PropertyValueNotInList"),
        ({"Boot": {"BootNext": "Boot0001"}}, "PropertyUnknown"),
        ({"Boot": "Pxe"}, "PropertyValueTypeError"),
        ({"PowerState": "On"}, "PropertyNotWritable"),
        ({"Colour": "red"}, "PropertyUnknown"),
        ({}, "NoOperation"),
    ],
)
async def test_a_change_that_cannot_be_made_changes_nothing_and_says_why(
    service: MachineService, client: httpx.AsyncClient, body: dict[str, object], key: str
) -> None:
    before = service.told("n000")
    answer = await client.patch(N0, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].endswith(key)
    assert service.told("n000") == before


async def test_the_identify_light_is_switched(service: MachineService, client: httpx.AsyncClient) -> None:
    assert (await client.patch(N0, json={"LocationIndicatorActive": True})).status_code == 204
    assert service.bmcs.bmc("n000").light is True
    assert (await client.patch(f"{ROOT}/Chassis/node-n000", json={"LocationIndicatorActive": False})).is_success
    assert service.bmcs.bmc("n000").light is False


async def test_an_image_is_put_into_the_virtual_drive_and_taken_out(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    path = f"{N0}/VirtualMedia/Cd"
    actions = (await get(client, path))["Actions"]
    insert, eject = (actions[f"#VirtualMedia.{name}"]["target"] for name in ("InsertMedia", "EjectMedia"))
    for body in ({}, {"Image": "boot.iso"}, {"Image": "http://b/i.iso", "WriteProtected": False}):
        assert (await client.post(insert, json=body)).status_code == 400
    assert (await client.post(insert, json={"Image": "http://b/i.iso", "Inserted": True})).status_code == 204
    found = await get(client, path)
    assert (found["Image"], found["Inserted"], found["ConnectedVia"]) == ("http://b/i.iso", True, "URI")
    assert (await client.post(eject, json={})).status_code == 204
    assert (await get(client, path))["Inserted"] is False
    await service.lose_bmc("n001")
    assert (await get(client, f"{ROOT}/Systems/n001/VirtualMedia/Cd"))["Inserted"] is None


async def test_firmware_settings_are_staged_beside_those_in_force(client: httpx.AsyncClient) -> None:
    found = await get(client, f"{N0}/Bios")
    settings = found["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    assert (await client.patch(settings, json={"Attributes": {"Sriov": True}})).status_code == 204
    assert (await get(client, settings))["Attributes"] == {"Sriov": True}
    assert (await get(client, f"{N0}/Bios"))["Attributes"]["Sriov"] is False
    assert (await client.patch(settings, json={"Attributes": {"A": {"b": 1}}})).status_code == 400


async def test_hardware_without_settings_has_none_and_a_dead_controller_is_no_hardware_without(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.bmcs.prank("n000").plan(Trick.NOT_THERE, times=1000)
    await service.lose_bmc("n001")
    assert (await get(client, f"{N0}/Bios"))["Attributes"] == {}
    assert (await client.get(f"{ROOT}/Systems/n001/Bios")).status_code == 502


async def test_the_logs_hold_what_was_noticed_and_what_the_controller_wrote_newest_first(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.alert("n000")
    service.alert("n000")
    noticed = service.of(EventHub).log
    async with asyncio.timeout(60):
        async for _ in await noticed.follow(0):
            if noticed.newest == 2:
                break
    for number in (1, 2, 3):
        service.bmcs.bmc("n000").log("warning", f"power supply {number} failed")
    events = await get(client, f"{N0}/LogServices/Events/Entries")
    assert [entry["Id"] for entry in events["Members"]] == ["2", "1"]
    assert events["Members"][0]["Message"] == "fan failed"
    written = await get(client, f"{N0}/LogServices/SEL/Entries")
    assert [entry["Id"] for entry in written["Members"]] == ["3", "2", "1"]
    for entry in (*events["Members"], *written["Members"]):
        assert (await get(client, entry["@odata.id"]))["Message"] == entry["Message"]
    assert (await client.get(f"{N0}/LogServices/SEL/Entries/9")).status_code == 404
    assert (await client.get(f"{N0}/LogServices/Else")).status_code == 404


async def test_a_caller_with_a_scope_sees_and_resets_only_its_own(service: MachineService) -> None:
    await service.put_group("mine", "n000")
    async with service.client("front", await service.token("operator", ["mine"])) as client:
        assert members(await get(client, "Systems")) == ["n000"]
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 204
        other = f"{ROOT}/Systems/n001"
        assert (await client.get(other)).status_code == 404
        assert (await client.get(f"{ROOT}/Chassis/node-n001/Sensors")).status_code == 404
        assert (await client.post(f"{other}/Actions/ComputerSystem.Reset", json={"ResetType": "On"})).status_code == 404


async def test_a_viewer_looks_and_changes_nothing(service: MachineService) -> None:
    before = service.told("n000")
    async with service.client("front", await service.token("viewer")) as client:
        await get(client, N0)
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 403
        assert (await client.patch(N0, json={"LocationIndicatorActive": True})).status_code == 403
    assert service.told("n000") == before


async def test_a_workload_manager_sees_nodes_and_not_their_hardware(service: MachineService) -> None:
    async with service.client("front", await service.token("workload-manager")) as client:
        found = await get(client, N0)
        assert found["SerialNumber"] is None
        assert not {"Actions", "Boot", "Bios"} & found.keys()
        assert (await get(client, f"{N0}/Processors"))["Members"] == []
        assert members(await get(client, "Managers")) == ["strata"]
        for path in (f"{N0}/Bios", f"{N0}/LogServices", f"{ROOT}/Chassis/node-n000/Sensors", f"{ROOT}/Fabrics"):
            assert (await client.get(path)).status_code == 403
    assert service.bmcs.requests == 0


async def test_without_the_hardware_layer_nodes_are_shown_and_nothing_is_offered(service: MachineService) -> None:
    for kind in (BmcService, InventoryService, AlertService, FabricService, ConsoleService):
        service.services.drop(kind)
    async with service.client() as client:
        found = await get(client, N0)
        assert not {"Actions", "Boot", "Bios", "LogServices"} & found.keys()
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 503


async def test_names_that_devices_chose_do_not_break_paths_or_terminals(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Reading(
        name="Strange\x1b[2J/..", kind="other", unit="furlong", value=3.0, health=None, high=None, low=None, doubt=""
    )

    async def sensors(who: Principal, select: str) -> Sequence[NodeReadings]:
        return [NodeReadings(node="n000", time=time.time(), readings=(odd,), trouble="")]

    monkeypatch.setattr(service.of(BmcService), "sensors", sensors)
    found = await get(client, "Chassis/node-n000/Sensors")
    strange = next(link["@odata.id"] for link in found["Members"] if "Strange" in link["@odata.id"])
    assert strange == f"{ROOT}/Chassis/node-n000/Sensors/Strange__2J"
    assert "\x1b" not in (await client.get(strange)).text
    assert "\\u001b" not in (await client.get(strange)).text


async def test_a_node_called_like_a_cabinet_is_not_taken_for_one(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.put_node("x1000")
    assert (await get(client, "Chassis/x1000"))["ChassisType"] == "Rack"
    assert (await get(client, "Chassis/node-x1000"))["Links"]["ComputerSystems"] == [
        {"@odata.id": f"{ROOT}/Systems/x1000"}
    ]


async def test_an_address_survives_being_an_id(client: httpx.AsyncClient, service: MachineService) -> None:
    await service.discover("n000")
    found = await get(client, N0)
    manager = await get(client, found["Links"]["ManagedBy"][1]["@odata.id"])
    assert service.bmcs.url("n000") in manager["Name"]
    assert manager["Links"]["ManagerForServers"] == [{"@odata.id": N0}]


def test_what_a_node_can_be_is_a_state_that_has_a_health() -> None:
    from strata.api.redfish.resources.systems import _HEALTH

    assert set(_HEALTH) <= set(State.__args__)  # type: ignore[attr-defined]
