"""Nodes as computer systems: what they show, and what is done to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from machine_support import ROOT, MachineService, get, members

from strata.core.state import State
from strata.fleet.nodes.records import DoingView
from support.fake_machine import address, fake_machine

N0 = f"{ROOT}/Systems/n000"
RESET = f"{N0}/Actions/ComputerSystem.Reset"


@pytest.fixture
def service() -> MachineService:
    return MachineService()


@pytest.fixture
async def client(service: MachineService) -> AsyncIterator[httpx.AsyncClient]:
    async with service.client() as client:
        yield client


async def test_the_systems_are_the_nodes_and_listing_them_asks_no_controller(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    assert members(await get(client, "Systems")) == [f"n{i:03d}" for i in range(6)]
    assert service.ground.reads == []


async def test_expanding_or_filtering_systems_asks_no_controller_either(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.see("n003", "on")
    found = await get(client, "Systems?$filter=PowerState eq 'On'&$expand=.")
    assert [item["Id"] for item in found["Members"]] == ["n003"]
    assert service.ground.reads == []


async def test_a_system_shows_what_it_is_made_of(service: MachineService, client: httpx.AsyncClient) -> None:
    found = await get(client, N0)
    assert (found["Manufacturer"], found["SerialNumber"], found["BiosVersion"]) == ("Acme", "S-n000", "BIOS 1.2")
    assert found["ProcessorSummary"] == {
        "Count": 2, "Model": "Model of processor", "CoreCount": 128, "LogicalProcessorCount": 256,
    }  # fmt: skip
    assert found["MemorySummary"]["TotalSystemMemoryGiB"] == 256
    assert members(await get(client, f"{N0}/Processors")) == ["CPU1", "CPU2", *_gpu("n000")]
    assert (await get(client, f"{N0}/Processors/CPU1"))["InstructionSet"] == "x86-64"
    assert (await get(client, f"{N0}/Memory/D0"))["CapacityMiB"] == 65536


def _gpu(node: str) -> list[str]:
    return ["GPU0"] if sum(map(ord, node)) % 4 == 0 else []


async def test_every_address_of_a_card_is_one_interface(client: httpx.AsyncClient) -> None:
    found = await get(client, f"{N0}/EthernetInterfaces")
    addresses = [(await get(client, link["@odata.id"]))["MACAddress"] for link in found["Members"]]
    assert len(addresses) == len(set(addresses)) == 2


async def test_a_drive_is_in_the_storage_that_its_controller_named_or_in_one_of_its_own(
    client: httpx.AsyncClient,
) -> None:
    assert members(await get(client, f"{N0}/Storage")) == ["1", "Drives"]
    for store, drive in (("1", "0"), ("Drives", "0-2")):
        found = await get(client, f"{N0}/Storage/{store}")
        assert [link["@odata.id"] for link in found["Drives"]] == [f"{ROOT}/Chassis/node-n000/Drives/{drive}"]
        whole = await get(client, found["Drives"][0]["@odata.id"])
        assert whole["Links"]["Storage"]["@odata.id"] == f"{N0}/Storage/{store}"


async def test_a_system_that_was_not_discovered_is_whole_and_says_what_is_not_known(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.ground.undiscovered.add("n000")
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
    service.see("n000", power, doing=DoingView(mutation=mutation, since=0, deadline=0) if mutation else None)
    found = await get(client, N0)
    assert (found["PowerState"], found["Status"]["State"]) == (shown, state)


async def test_open_alerts_and_faults_are_its_health(service: MachineService, client: httpx.AsyncClient) -> None:
    for node in ("n000", "n001", "n002"):
        service.see(node, "on")
    service.see("n002", "on", state="faulted")
    service.ground.alert("n001", "warning")
    health = [(await get(client, f"Systems/n00{i}"))["Status"]["Health"] for i in range(4)]
    assert health == ["OK", "Warning", "Critical", None]


async def test_a_controller_that_is_slow_or_dead_does_not_keep_its_system_from_being_shown(
    service: MachineService, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.api.redfish.resources.live.PATIENCE", 0.01)
    service.ground.slow = 0.2
    service.ground.dead.add("n001")
    for node in ("n000", "n001"):
        boot = (await get(client, f"Systems/{node}"))["Boot"]
        assert (boot["BootSourceOverrideTarget"], boot["BootSourceOverrideEnabled"]) == (None, None)


@pytest.mark.parametrize(
    ("kind", "action"),
    [("On", "on"), ("ForceOff", "off"), ("GracefulShutdown", "graceful-off"), ("ForceRestart", "cycle"),
     ("GracefulRestart", "graceful-restart"), ("PowerCycle", "cycle"), ("Nmi", "nmi")],
)  # fmt: skip
async def test_every_reset_that_is_offered_is_done(
    service: MachineService, client: httpx.AsyncClient, kind: str, action: str
) -> None:
    offered = (await get(client, N0))["Actions"]["#ComputerSystem.Reset"]
    assert kind in offered["ResetType@Redfish.AllowableValues"]
    answer = await client.post(offered["target"], json={"ResetType": kind})
    assert (answer.status_code, answer.content) == (204, b"")
    assert service.ground.asked == [("power", action, "n000")]


async def test_on_and_off_become_desires(service: MachineService, client: httpx.AsyncClient) -> None:
    await client.post(RESET, json={"ResetType": "On"})
    assert service.facade.nodes["n000"].desires["power"].values == ("on",)


async def test_a_brake_is_told_and_nothing_is_done(service: MachineService, client: httpx.AsyncClient) -> None:
    service.ground.brakes["n000"] = "frozen: cooling works"
    answer = await client.post(RESET, json={"ResetType": "PowerCycle"})
    assert answer.status_code == 409
    assert "cooling works" in answer.json()["error"]["message"]


async def test_a_reset_that_becomes_a_job_is_a_task(service: MachineService, client: httpx.AsyncClient) -> None:
    service.ground.as_job = True
    answer = await client.post(RESET, json={"ResetType": "PowerCycle"})
    assert answer.status_code == 202
    assert answer.headers["location"].endswith("/j1")


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
    assert service.ground.asked == []


@pytest.mark.parametrize(
    ("boot", "shown"),
    [
        ({"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}, ("Pxe", "Once", None)),
        (
            {"BootSourceOverrideTarget": "UefiHttp", "BootSourceOverrideEnabled": "Continuous",
             "HttpBootUri": "http://b/x.efi", "BootSourceOverrideMode": "UEFI"},
            ("UefiHttp", "Continuous", "UEFI"),
        ),
        ({"BootSourceOverrideTarget": "Hdd"}, ("Hdd", "Once", None)),
        ({"BootSourceOverrideEnabled": "Disabled"}, ("None", "Disabled", None)),
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
    answer = await client.patch(N0, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].endswith(key)
    assert service.ground.asked == []


async def test_the_identify_light_is_switched(service: MachineService, client: httpx.AsyncClient) -> None:
    assert (await client.patch(N0, json={"LocationIndicatorActive": True})).status_code == 204
    assert (await client.patch(f"{ROOT}/Chassis/node-n000", json={"LocationIndicatorActive": False})).is_success
    assert service.ground.asked == [("identify", "True", "n000"), ("identify", "False", "n000")]


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
    service.ground.dead.add("n001")
    assert (await get(client, f"{ROOT}/Systems/n001/VirtualMedia/Cd"))["Inserted"] is None


async def test_firmware_settings_are_staged_beside_those_in_force(client: httpx.AsyncClient) -> None:
    found = await get(client, f"{N0}/Bios")
    settings = found["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    assert (await client.patch(settings, json={"Attributes": {"ProcTurbo": "Disabled"}})).status_code == 204
    assert (await get(client, settings))["Attributes"] == {"ProcTurbo": "Disabled"}
    assert (await get(client, f"{N0}/Bios"))["Attributes"]["ProcTurbo"] == "Enabled"
    assert (await client.patch(settings, json={"Attributes": {"A": {"b": 1}}})).status_code == 400


async def test_hardware_without_settings_has_none_and_a_dead_controller_is_no_hardware_without(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.ground.bare.add("n000")
    service.ground.dead.add("n001")
    assert (await get(client, f"{N0}/Bios"))["Attributes"] == {}
    assert (await client.get(f"{ROOT}/Systems/n001/Bios")).status_code == 502


async def test_the_logs_hold_what_was_noticed_and_what_the_controller_wrote_newest_first(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.furnish()
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
    service.facade.groups_["mine"] = ({"n000"}, "", 1)
    async with service.client("front", await service.token("operator", ["mine"])) as client:
        assert members(await get(client, "Systems")) == ["n000"]
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 204
        other = f"{ROOT}/Systems/n001"
        assert (await client.get(other)).status_code == 404
        assert (await client.get(f"{ROOT}/Chassis/node-n001/Sensors")).status_code == 404
        assert (await client.post(f"{other}/Actions/ComputerSystem.Reset", json={"ResetType": "On"})).status_code == 404


async def test_a_viewer_looks_and_changes_nothing(service: MachineService) -> None:
    async with service.client("front", await service.token("viewer")) as client:
        await get(client, N0)
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 403
        assert (await client.patch(N0, json={"LocationIndicatorActive": True})).status_code == 403
    assert service.ground.asked == []


async def test_a_workload_manager_sees_nodes_and_not_their_hardware(service: MachineService) -> None:
    async with service.client("front", await service.token("workload-manager")) as client:
        found = await get(client, N0)
        assert found["SerialNumber"] is None
        assert not {"Actions", "Boot", "Bios"} & found.keys()
        assert (await get(client, f"{N0}/Processors"))["Members"] == []
        assert members(await get(client, "Managers")) == ["strata"]
        for path in (f"{N0}/Bios", f"{N0}/LogServices", f"{ROOT}/Chassis/node-n000/Sensors", f"{ROOT}/Fabrics"):
            assert (await client.get(path)).status_code == 403
    assert service.ground.reads == []


async def test_without_the_hardware_layer_nodes_are_shown_and_nothing_is_offered(service: MachineService) -> None:
    for kind in fake_machine(service.facade)[0]:
        service.services.drop(kind)
    async with service.client() as client:
        found = await get(client, N0)
        assert not {"Actions", "Boot", "Bios", "LogServices"} & found.keys()
        assert (await client.post(RESET, json={"ResetType": "On"})).status_code == 503


async def test_names_that_devices_chose_do_not_break_paths_or_terminals(client: httpx.AsyncClient) -> None:
    found = await get(client, "Chassis/node-n000/Sensors")
    strange = next(link["@odata.id"] for link in found["Members"] if "Strange" in link["@odata.id"])
    assert strange == f"{ROOT}/Chassis/node-n000/Sensors/Strange__2J"
    assert "\x1b" not in (await client.get(strange)).text
    assert "\\u001b" not in (await client.get(strange)).text


async def test_a_node_called_like_a_cabinet_is_not_taken_for_one(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    service.put("x1000")
    assert (await get(client, "Chassis/x1000"))["ChassisType"] == "Rack"
    assert (await get(client, "Chassis/node-x1000"))["Links"]["ComputerSystems"] == [
        {"@odata.id": f"{ROOT}/Systems/x1000"}
    ]


async def test_an_address_survives_being_an_id(client: httpx.AsyncClient, service: MachineService) -> None:
    found = await get(client, N0)
    manager = await get(client, found["Links"]["ManagedBy"][1]["@odata.id"])
    assert address("n000") in manager["Name"]
    assert manager["Links"]["ManagerForServers"] == [{"@odata.id": N0}]


def test_what_a_node_can_be_is_a_state_that_has_a_health() -> None:
    from strata.api.redfish.resources.systems import _HEALTH

    assert set(_HEALTH) <= set(State.__args__)  # type: ignore[attr-defined]
