"""What one can change through a simulated controller: boot, firmware, limits, lights, passwords."""

from __future__ import annotations

import aiohttp
import pytest

from strata.virtual.fleet.faults import Timing
from strata.virtual.redfish.bmc import Account

RESET = "Systems/1/Actions/ComputerSystem.Reset"
N = "n00001"


async def test_a_boot_override_for_once_is_used_up_by_the_next_start(ask, room):
    wish = {
        "BootSourceOverrideEnabled": "Once",
        "BootSourceOverrideTarget": "UefiHttp",
        "HttpBootUri": "http://10.0.0.1/boot.efi",
    }
    assert (await ask(N, "PATCH", "Systems/1", {"Boot": wish}))[0] == 204
    assert (await ask(N, "GET", "Systems/1"))[1]["Boot"].items() >= wish.items()
    await ask(N, "POST", RESET, {"ResetType": "On"})
    boot = (await ask(N, "GET", "Systems/1"))[1]["Boot"]
    assert (boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]) == ("Disabled", "None")
    await ask(N, "PATCH", "Systems/1", {"Boot": wish | {"BootSourceOverrideEnabled": "Continuous"}})
    for kind in ("ForceRestart", "PowerCycle"):
        assert (await ask(N, "POST", RESET, {"ResetType": kind}))[0] == 204
    assert room.bmc(N).boots == ["UefiHttp"] * 3
    assert (await ask(N, "GET", "Systems/1"))[1]["Boot"]["BootSourceOverrideEnabled"] == "Continuous"


async def test_a_restart_needs_power_and_takes_the_os_down(ask, room):
    assert (await ask(N, "POST", RESET, {"ResetType": "ForceRestart"}))[0] == 500
    first = room.nodes.all[:1]
    for kind in ("ForceRestart", "PowerCycle", "Nmi"):
        room.nodes.put(first, now=0.0, power="on", os="up")
        assert (await ask(N, "POST", RESET, {"ResetType": kind}))[0] == 204
        assert room.nodes.truth("os", first, 0.0).values() == ["down"]
        assert room.nodes.truth("power", first, 0.0).values() == ["on"]
    fence = {"headers": {"X-Strata-Fence": "3.1"}}
    assert (await ask(N, "POST", RESET, {"ResetType": "PowerCycle"}, **fence))[0] == 204
    assert (await ask(N, "POST", RESET, {"ResetType": "PowerCycle"}, **fence))[0] == 412


async def test_bios_settings_wait_for_the_next_start(ask):
    assert (await ask(N, "PATCH", "Systems/1/Bios/Settings", {"Attributes": {"Sriov": True}}))[0] == 204
    assert (await ask(N, "GET", "Systems/1/Bios"))[1]["Attributes"]["Sriov"] is False
    assert (await ask(N, "GET", "Systems/1/Bios/Settings"))[1]["Attributes"] == {"Sriov": True}
    await ask(N, "POST", RESET, {"ResetType": "On"})
    assert (await ask(N, "GET", "Systems/1/Bios"))[1]["Attributes"]["Sriov"] is True
    assert (await ask(N, "GET", "Systems/1/Bios/Settings"))[1]["Attributes"] == {}


async def test_virtual_media_go_in_and_out(ask):
    drive = "Systems/1/VirtualMedia/CD1"
    image = {"Image": "http://10.0.0.1/rescue.iso"}
    for body, status in (({}, 400), (image, 204), (image, 409)):
        assert (await ask(N, "POST", f"{drive}/Actions/VirtualMedia.InsertMedia", body))[0] == status
    found = (await ask(N, "GET", drive))[1]
    assert (found["Image"], found["ImageName"], found["Inserted"]) == (image["Image"], "rescue.iso", True)
    assert (await ask(N, "POST", f"{drive}/Actions/VirtualMedia.EjectMedia", {}))[0] == 204
    assert (await ask(N, "GET", drive))[1]["Inserted"] is False


@pytest.mark.parametrize("change", [{"LocationIndicatorActive": True}, {"IndicatorLED": "Blinking"}])
async def test_the_identify_light_is_one_light_whatever_it_is_called(ask, change):
    assert (await ask(N, "PATCH", "Systems/1", change))[0] == 204
    system = (await ask(N, "GET", "Systems/1"))[1]
    assert (system["LocationIndicatorActive"], system["IndicatorLED"]) == (True, "Blinking")
    assert (await ask(N, "GET", "Chassis/1"))[1]["LocationIndicatorActive"] is True


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("Chassis/1/Power", {"PowerControl": [{"PowerLimit": {"LimitInWatts": 210}}]}),
        ("Chassis/1/EnvironmentMetrics", {"PowerLimitWatts": {"SetPoint": 210}}),
        ("Chassis/1/Controls/PowerLimit", {"SetPoint": 210, "ControlMode": "Automatic"}),
    ],
)
async def test_a_power_limit_in_any_shape_is_the_same_limit_and_is_kept(ask, path, body):
    await ask(N, "POST", RESET, {"ResetType": "On"})
    assert (await ask(N, "PATCH", path, body))[0] == 204
    control = (await ask(N, "GET", "Chassis/1/Power"))[1]["PowerControl"][0]
    assert (control["PowerLimit"]["LimitInWatts"], control["PowerConsumedWatts"]) == (210, 210)
    assert (await ask(N, "GET", "Chassis/1/EnvironmentMetrics"))[1]["PowerLimitWatts"]["SetPoint"] == 210
    assert (await ask(N, "GET", "Chassis/1/Controls/PowerLimit"))[1]["SetPoint"] == 210
    assert (await ask(N, "PATCH", "Chassis/1/Controls/PowerLimit", {"ControlMode": "Disabled"}))[0] == 204
    assert (await ask(N, "GET", "Chassis/1/Sensors/TotalPower"))[1]["Reading"] > 210


@pytest.mark.parametrize("watts", [0, 199, 2401, -5, "many", True])
async def test_an_impossible_power_limit_is_refused(ask, watts):
    assert (await ask(N, "PATCH", "Chassis/1/EnvironmentMetrics", {"PowerLimitWatts": {"SetPoint": watts}}))[0] == 400


async def test_firmware_is_fetched_as_a_task_that_ends_after_a_while(room, ask):
    room.nodes.timing = Timing()
    assert (await ask(N, "GET", "Systems/1"))[1]["BiosVersion"] == "2.1.0"
    update = {
        "ImageURI": "http://10.0.0.1/bios-3.2.1.bin",
        "Targets": ["/redfish/v1/UpdateService/FirmwareInventory/BIOS"],
    }
    status, task = await ask(N, "POST", "UpdateService/Actions/UpdateService.SimpleUpdate", update)
    assert (status, task["TaskState"], task["PercentComplete"]) == (202, "Running", 0)
    monitor, place = task["TaskMonitor"][12:], task["@odata.id"][12:]
    room.clock.now = 30.0
    assert (await ask(N, "GET", place))[1]["PercentComplete"] == 50
    assert (await ask(N, "GET", monitor))[0] == 202
    assert (await ask(N, "GET", "UpdateService/FirmwareInventory/BIOS"))[1]["Version"] == "2.1.0"
    room.clock.now = 60.0
    assert (await ask(N, "GET", monitor))[0] == 200
    assert (await ask(N, "GET", place))[1]["TaskState"] == "Completed"
    assert (await ask(N, "GET", "UpdateService/FirmwareInventory/BIOS"))[1]["Version"] == "3.2.1"
    assert (await ask(N, "GET", "Systems/1"))[1]["BiosVersion"] == "3.2.1"


async def test_firmware_can_be_pushed_can_wait_for_a_start_and_can_fail(room, ask, user):
    form = aiohttp.FormData()
    form.add_field("UpdateParameters", '{"@Redfish.OperationApplyTime": "OnReset"}', content_type="application/json")
    form.add_field("UpdateFile", b"\x00--\r\n" * 1000, filename="bios-4.0.bin", content_type="application/octet-stream")
    async with user.post(f"{room.url(N)}/redfish/v1/UpdateService/upload", data=form) as reply:
        assert reply.status == 202
        task = await reply.json()
    assert task["TaskState"] == "Pending"
    await ask(N, "POST", RESET, {"ResetType": "On"})
    assert (await ask(N, "GET", "UpdateService/FirmwareInventory/BIOS"))[1]["Version"] == "4.0"
    room.bmc(N).updates.fail_next = True
    simple = "UpdateService/Actions/UpdateService.SimpleUpdate"
    _, task = await ask(N, "POST", simple, {"ImageURI": "http://10.0.0.1/bmc-2.0.bin"})
    assert (task["TaskState"], task["TaskStatus"]) == ("Exception", "Critical")
    for bad in (
        {},
        {"ImageURI": "http://h/x", "Targets": ["CPLD"]},
        {"ImageURI": "x", "@Redfish.OperationApplyTime": "Y"},
    ):
        assert (await ask(N, "POST", simple, bad))[0] == 400


async def test_a_new_password_counts_from_now_on(ask):
    for bad in ("short", "x" * 65, None, 12345678):
        assert (await ask(N, "PATCH", "AccountService/Accounts/1", {"Password": bad}))[0] == 400
    assert (await ask(N, "PATCH", "AccountService/Accounts/1", {"Password": "new-and-long"}))[0] == 204
    assert (await ask(N, "GET", "Systems/1"))[0] == 401
    fresh = {"Authorization": Account("root", "new-and-long").basic}
    assert (await ask(N, "GET", "Systems/1", headers=fresh))[0] == 200
    assert (await ask("n00002", "GET", "Systems/1"))[0] == 200


async def test_time_servers_can_be_set(ask):
    protocol = "Managers/1/NetworkProtocol"
    assert (await ask(N, "PATCH", protocol, {"NTP": {"NTPServers": ["10.0.0.1"], "ProtocolEnabled": True}}))[0] == 204
    assert (await ask(N, "GET", protocol))[1]["NTP"] == {"ProtocolEnabled": True, "NTPServers": ["10.0.0.1"]}
    assert (await ask(N, "PATCH", protocol, {"NTP": {"NTPServers": [7]}}))[0] == 400


async def test_a_stale_etag_stops_a_change_to_any_resource(ask):
    stale = {"headers": {"If-Match": 'W/"0"'}}
    for path, change in (
        ("Systems/1", {"AssetTag": "x"}),
        ("AccountService/Accounts/1", {"Password": "new-and-long"}),
        ("Systems/1/Bios/Settings", {"Attributes": {"Sriov": True}}),
    ):
        assert (await ask(N, "PATCH", path, change, **stale))[0] == 412
