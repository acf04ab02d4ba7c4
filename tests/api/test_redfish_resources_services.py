"""The machine as a whole: managers, cables, PDUs, metrics, firmware, aggregates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from machine_support import ROOT, MachineService, get, machine_service, members

import strata
from strata.api.redfish.resources.ids import address_of, bmc_id, manager
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.operations.service import OperationService
from strata.hardware.fabric.records import FabricView, LinkView, SwitchView
from strata.hardware.fabric.service import FabricService
from strata.hardware.inventory.service import InventoryService

AGGREGATES = f"{ROOT}/AggregationService/Aggregates"
PDU = "pdu-x1000m0"
UPDATE = f"{ROOT}/UpdateService/Actions/UpdateService.SimpleUpdate"


def system(name: str) -> dict[str, str]:
    return {"@odata.id": f"{ROOT}/Systems/{name}"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MachineService]:
    async with machine_service(tmp_path) as found:
        await found.put_group("rack", "n[000-001]")
        yield found


# -- managers


async def test_the_managers_are_strata_and_the_controllers_that_were_discovered(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.discover("n000", "n001", PDU)
    found = await get(client, "Managers")
    known = [service.bmcs.url(name) for name in ("n000", "n001", PDU)]
    assert members(found) == ["strata", *map(bmc_id, known)]
    own = await get(client, "Managers/strata")
    assert (own["ManagerType"], own["FirmwareVersion"]) == ("Service", strata.__version__)
    bmc = await get(client, found["Members"][1]["@odata.id"])
    identity = (await service.of(InventoryService).of_node(LOCAL_ADMIN, "n000")).identity
    assert (bmc["ManagerType"], bmc["FirmwareVersion"], bmc["Manufacturer"]) == (
        "BMC",
        identity.firmware,
        identity.vendor,
    )


@pytest.mark.parametrize(
    "where", ["https://10.0.0.1:443/redfish/v1/Systems/A", "bmc_3A", "[fe80::1%eth0]", "ünï", "a_b_c", ""]
)
def test_an_address_can_be_had_back_from_its_id(where: str) -> None:
    assert address_of(bmc_id(where)) == where
    assert bmc_id(where).replace("-", "").replace("_", "").replace(".", "").isalnum()


@pytest.mark.parametrize("ident", ["bmc-https_3A_2F_2Fnowhere", "bmc-", "else", "bmc-_FF"])
async def test_a_manager_that_is_not_there_is_not_found(client: httpx.AsyncClient, ident: str) -> None:
    assert (await client.get(f"{ROOT}/Managers/{ident}")).status_code == 404


async def test_the_audit_log_is_for_those_who_may_read_it(service: MachineService) -> None:
    path = f"{ROOT}/Managers/strata/LogServices/Audit/Entries"
    async with service.client("front", await service.token("operator")) as client:
        found = await get(client, path)
        assert found["Members"][0]["Username"] == LOCAL_ADMIN.name
        assert await get(client, found["Members"][0]["@odata.id"])
    async with service.client("front", await service.token("viewer")) as client:
        assert (await client.get(path)).status_code == 403
        assert "LogServices" not in await get(client, "Managers/strata")


# -- fabrics and power equipment


@pytest.fixture
async def cabled(service: MachineService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two switches, a cable between them, and nodes."""
    switches = tuple(
        SwitchView(id=f"/redfish/v1/Fabrics/hsn/Switches/s{n}", name=f"s{n}", fabric="hsn", location="x1000c0r0",
                   model="Slingshot", ports=64, nodes="n000" if n == 0 else "")
        for n in (0, 1)
    )  # fmt: skip
    a, b = (switch.id for switch in switches)
    cables = (
        LinkView(a=f"{a}:p63", b=f"{b}:p63", up=True, speed_gbps=200, source="redfish"),
        LinkView(a=f"{a}:p0", b="n000:hsn0", up=None, speed_gbps=None, source="lldp"),
    )

    async def graph(who: Principal) -> FabricView:
        return FabricView(switches=switches, links=cables)

    monkeypatch.setattr(service.of(FabricService), "graph", graph)


@pytest.mark.usefixtures("cabled")
async def test_a_cable_between_switches_is_a_link_from_port_to_port(client: httpx.AsyncClient) -> None:
    assert members(await get(client, "Fabrics")) == ["hsn"]
    here = await get(client, "Fabrics/hsn/Switches/s0/Ports/p63")
    there = here["Links"]["ConnectedSwitchPorts"][0]["@odata.id"]
    assert there == f"{ROOT}/Fabrics/hsn/Switches/s1/Ports/p63"
    assert (await get(client, there))["Links"]["ConnectedSwitches"][0]["@odata.id"].endswith("/s0")
    assert (here["LinkStatus"], here["CurrentSpeedGbps"]) == ("LinkUp", 200)


@pytest.mark.usefixtures("cabled")
async def test_a_port_with_a_node_says_which_and_nothing_that_is_not_known(client: httpx.AsyncClient) -> None:
    port = await get(client, "Fabrics/hsn/Switches/s0/Ports/p0")
    assert "n000:hsn0" in port["Description"]
    assert "LinkStatus" not in port


@pytest.mark.parametrize("path", ["no", "no/Switches", "hsn/Switches/s9", "hsn/Switches/s0/Ports/p99"])
@pytest.mark.usefixtures("cabled")
async def test_what_is_not_in_the_graph_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(f"{ROOT}/Fabrics/{path}")).status_code == 404


async def test_outlets_belong_to_their_pdu(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.discover(PDU)
    assert members(await get(client, "PowerEquipment/RackPDUs")) == [PDU]
    assert members(await get(client, f"PowerEquipment/RackPDUs/{PDU}/Outlets")) == ["A1"]
    assert (await get(client, f"PowerEquipment/RackPDUs/{PDU}/Outlets/A1"))["PowerState"] == "On"
    assert (await client.get(f"{ROOT}/PowerEquipment/RackPDUs/{PDU}/Outlets/A9")).status_code == 404


# -- telemetry


async def test_the_fleet_report_counts_nodes_and_asks_no_controller(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.see("n000", "on")
    for name in service.nodes[1:]:
        await service.see(name, "off")
    await service.put_node("unseen")
    report = await get(client, "TelemetryService/MetricReports/Fleet")
    values = {value["MetricId"]: value["MetricValue"] for value in report["MetricValues"]}
    assert (values["Nodes"], values["Power_on"], values["Power_off"], values["Power_unknown"]) == ("7", "1", "5", "1")
    defined = members(await get(client, "TelemetryService/MetricDefinitions"))
    assert set(values) == set(defined)
    assert service.bmcs.requests == 0


# -- firmware


async def test_firmware_is_stratas_the_controllers_and_the_nodes(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.discover("n000", PDU)
    found = await get(client, "UpdateService/FirmwareInventory")
    assert members(found) == ["strata", *(bmc_id(service.bmcs.url(name)) for name in ("n000", PDU)), "system-n000"]
    versions = [(await get(client, link["@odata.id"]))["Version"] for link in found["Members"]]
    assert (versions[0], versions[-1]) == (strata.__version__, "2.1.0")
    assert all(versions)
    assert (await client.get(f"{ROOT}/UpdateService/FirmwareInventory/system-n001")).status_code == 404


async def test_an_update_is_a_task_over_the_nodes_that_its_targets_name(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.discover("n004")
    body = {
        "ImageURI": "http://files/bmc.bin",
        "Targets": [f"{ROOT}/Systems/n003", f"{AGGREGATES}/rack", manager(service.bmcs.url("n004"))],
        "@Redfish.OperationApplyTime": "OnReset",
    }
    answer = await client.post(UPDATE, json=body)
    assert answer.status_code == 202
    assert answer.headers["location"].startswith(f"{ROOT}/TaskService/")
    task = answer.headers["location"].rpartition("/")[2]
    assert (await service.service.operations.show(task)).total == 4
    async with asyncio.timeout(60):  # it is over when the nodes have been restarted, which nobody does here
        while sum(bool(service.bmcs.bmc(name).updates.tasks) for name in service.nodes) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not service.bmcs.bmc("n002").updates.tasks


@pytest.mark.parametrize(
    "change",
    [
        {"ImageURI": None},
        {"ImageURI": "bmc.bin"},
        {"Targets": []},
        {"Targets": None},
        {"Targets": [f"{ROOT}/Systems/n*"]},
        {"Targets": [f"{ROOT}/Systems/n000,n001"]},
        {"Targets": [f"{ROOT}/Chassis/x1000"]},
        {"Targets": [7]},
        {"@Redfish.OperationApplyTime": "Someday"},
        {"Username": "root"},
    ],
)
async def test_an_update_that_does_not_say_what_and_where_is_refused(
    service: MachineService, client: httpx.AsyncClient, change: dict[str, object]
) -> None:
    body = {"ImageURI": "http://files/bmc.bin", "Targets": [f"{ROOT}/Systems/n000"], **change}
    assert (await client.post(UPDATE, json=body)).status_code == 400
    assert (await service.of(OperationService).operations(LOCAL_ADMIN, 10, "")).items == ()
    assert service.bmcs.requests == 0


# -- aggregates


async def test_groups_are_aggregates_of_systems(client: httpx.AsyncClient) -> None:
    assert members(await get(client, AGGREGATES)) == ["rack"]
    found = await get(client, f"{AGGREGATES}/rack")
    assert (found["Elements"], found["ElementsCount"]) == ([system("n000"), system("n001")], 2)
    assert "#Aggregate.SetDefaultBootOrder" not in found["Actions"]


async def test_an_aggregate_that_is_made_is_a_group(service: MachineService, client: httpx.AsyncClient) -> None:
    made = await client.post(AGGREGATES, json={"Name": "mine", "Elements": [system("n002"), system("n003")]})
    assert (made.status_code, made.headers["location"]) == (201, f"{AGGREGATES}/mine")
    assert (await service.service.group(LOCAL_ADMIN, "mine")).members == "n[002-003]"
    again = await client.post(AGGREGATES, json={"Name": "mine", "Elements": []})
    assert again.status_code == 409
    actions = made.json()["Actions"]
    add = await client.post(actions["#Aggregate.AddElements"]["target"], json={"Elements": [system("n004")]})
    remove = await client.post(actions["#Aggregate.RemoveElements"]["target"], json={"Elements": [system("n002")]})
    assert (add.status_code, remove.status_code) == (204, 204)
    assert (await service.service.group(LOCAL_ADMIN, "mine")).members == "n[003-004]"
    assert (await client.delete(f"{AGGREGATES}/mine")).status_code == 204
    assert (await client.get(f"{AGGREGATES}/mine")).status_code == 404


async def test_an_aggregate_without_a_name_gets_one(service: MachineService, client: httpx.AsyncClient) -> None:
    made = await client.post(AGGREGATES, json={"Elements": [system("n002")]})
    assert made.status_code == 201
    assert (await service.service.group(LOCAL_ADMIN, made.json()["Id"])).members == "n002"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"Name": "a b", "Elements": []},
        {"Elements": [system("nobody")]},
        {"Elements": "n000"},
        {"Id": "x", "Elements": []},
    ],
)
async def test_an_aggregate_that_makes_no_sense_is_not_made(
    service: MachineService, client: httpx.AsyncClient, body: dict[str, object]
) -> None:
    assert (await client.post(AGGREGATES, json=body)).status_code in (400, 404)
    assert [group.name for group in await service.service.groups(LOCAL_ADMIN)] == ["rack"]


async def test_an_aggregate_is_reset_as_one(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.see("n000", "on")
    await service.see("n001", "on")
    target = (await get(client, f"{AGGREGATES}/rack"))["Actions"]["#Aggregate.Reset"]["target"]
    assert (await client.post(target, json={"ResetType": "PowerCycle"})).status_code == 204
    assert [bool(service.bmcs.bmc(name).resets) for name in service.nodes] == [True, True, *[False] * 4]


async def test_systems_and_aggregates_are_reset_together(service: MachineService, client: httpx.AsyncClient) -> None:
    for name in ("n000", "n001", "n004"):
        await service.see(name, "on")
    target = (await get(client, "AggregationService"))["Actions"]["#AggregationService.Reset"]["target"]
    body = {"ResetType": "PowerCycle", "TargetURIs": [f"{ROOT}/Systems/n004", f"{AGGREGATES}/rack"]}
    assert (await client.post(target, json=body)).status_code == 204
    assert [name for name in service.nodes if service.bmcs.bmc(name).resets] == ["n000", "n001", "n004"]
    assert (await client.post(target, json={**body, "TargetURIs": [f"{AGGREGATES}/none"]})).status_code == 404


async def test_a_reset_that_some_nodes_refuse_says_which(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.see("n000", "on")
    await service.see("n001", "on")
    await service.service.freeze(LOCAL_ADMIN, "node:n001", "a bad fan")
    answer = await client.post(f"{AGGREGATES}/rack/Actions/Aggregate.Reset", json={"ResetType": "PowerCycle"})
    assert answer.status_code == 200
    assert "n001: frozen" in answer.text


async def test_a_batch_size_that_we_would_not_keep_is_refused(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    for name in ("BatchSize", "DelayBetweenBatchesInSeconds"):
        answer = await client.post(
            f"{AGGREGATES}/rack/Actions/Aggregate.Reset", json={"ResetType": "PowerCycle", name: 2}
        )
        assert answer.status_code == 400
        assert "budgets" in answer.text
    assert not any(service.bmcs.bmc(name).resets for name in service.nodes)


async def test_the_sources_are_the_bmcs_and_tell_no_secret(service: MachineService, client: httpx.AsyncClient) -> None:
    await service.discover("n000")
    found = await get(client, "AggregationService/AggregationSources")
    source = await get(client, found["Members"][0]["@odata.id"])
    assert (source["HostName"], source["UserName"], source["Password"]) == (service.bmcs.url("n000"), None, None)
    assert system("n000") in source["Links"]["ResourcesAccessed"]
