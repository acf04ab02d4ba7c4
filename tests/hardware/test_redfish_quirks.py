"""Each vendor's strategy against a stub that misbehaves in that way on a real socket."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from strata.core.errors import BadRequest, DeviceError, NotOffered
from strata.hardware.bmc.protocol import Boot, ServiceSettings
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from support.odd_bmc import ROOT, Asked, OddBmc, only_system

SYSTEM, MANAGER = f"{ROOT}/Systems/1", f"{ROOT}/Managers/1"
LOG = f"{SYSTEM}/LogServices/SEL"
MANAGED = {"Links": {"ManagedBy": [{"@odata.id": MANAGER}]}}


@pytest.fixture
async def client():
    async with RedfishClient(Credentials("root", "x")) as found:
        yield found


def sent(bmc: OddBmc, path: str = "") -> object:
    """What was changed, at the last."""
    return bmc.sent("PATCH", path)[-1].json


def boot_of(bmc: OddBmc) -> dict[str, str]:
    return sent(bmc)["Boot"]  # type: ignore[index, no-any-return]


# -- boot overrides


async def test_a_mode_that_need_not_change_is_not_sent(client):
    """HPE refuses a mode in any case, Dell begins a configuration job: so it is sent only where it changes."""
    boot = {"BootSourceOverrideMode": "UEFI", "BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Cd"]}

    def refuse_mode(asked: Asked) -> web.Response:
        return web.Response(status=400 if b"BootSourceOverrideMode" in asked.body else 200)

    async with OddBmc(only_system(Boot=boot, Manufacturer="HPE")) as bmc:
        bmc.answers[("PATCH", SYSTEM)] = refuse_mode
        controller = RedfishBmc(client, bmc.address)
        await controller.set_boot(Boot(target="pxe"))
        await controller.set_boot(Boot(target="pxe", uefi=True))
        assert boot_of(bmc) == {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
        with pytest.raises(DeviceError):
            await controller.set_boot(Boot(target="pxe", uefi=False))


@pytest.mark.parametrize("mode", ["UEFI", None])
async def test_supermicro_is_told_the_present_mode_where_it_shows_one(client, mode):
    boot = {"BootSourceOverrideTarget": "None"} | ({"BootSourceOverrideMode": mode} if mode else {})
    async with OddBmc(only_system(Boot=boot, Manufacturer="Supermicro")) as bmc:
        controller = RedfishBmc(client, bmc.address)
        await controller.set_boot(Boot(target="pxe"))
        assert boot_of(bmc).get("BootSourceOverrideMode") == mode
        assert (await controller.identity()).quirks == ("echo-boot-mode", "usb-cd")


async def test_supermicro_boots_virtual_media_as_a_usb_cd_where_it_has_one(client):
    for allowed, word in ((["Cd", "UsbCd"], "UsbCd"), (["Cd"], "Cd")):
        boot = {"BootSourceOverrideTarget@Redfish.AllowableValues": allowed}
        async with OddBmc(only_system(Boot=boot, Manufacturer="Supermicro")) as bmc:
            await RedfishBmc(client, bmc.address).set_boot(Boot(target="media"))
            assert boot_of(bmc)["BootSourceOverrideTarget"] == word


@pytest.mark.parametrize(("oem", "path"), [("Ami", f"{SYSTEM}/SD"), ("Dell", SYSTEM)])
async def test_ami_takes_boot_overrides_at_its_future_state_and_dell_does_not(client, oem, path):
    """ASRock Rack and Gigabyte boards say: moved to FutureState URI. Dell shows one too, and refuses it."""
    settings = {"@Redfish.Settings": {"SettingsObject": {"@odata.id": f"{SYSTEM}/SD"}}}
    resources = {ROOT: {"Oem": {oem: {}}}, **only_system(Boot={"BootSourceOverrideTarget": "None"}, **settings)}
    async with OddBmc({**resources, f"{SYSTEM}/SD": {}}) as bmc:
        wrong = SYSTEM if oem == "Ami" else f"{SYSTEM}/SD"
        bmc.answers[("PATCH", wrong)] = lambda _: web.Response(status=400)
        await RedfishBmc(client, bmc.address).set_boot(Boot(target="pxe"))
        assert [one.path for one in bmc.sent("PATCH")] == [path]


async def test_cray_node_cards_switch_off_with_off_and_tell_their_bounds_in_their_own_corner(client):
    """And list power domains that cannot be capped, which are no limits."""
    reset = {"target": f"{SYSTEM}/Actions/Reset", "ResetType@Redfish.AllowableValues": ["Off", "On"]}
    links = {"Links": {"Chassis": [{"@odata.id": f"{ROOT}/Chassis/Node0"}]}}
    control = {"Name": "Node Power Control", "PowerLimit": {"LimitInWatts": None}}
    bounds = {"Oem": {"Cray": {"PowerLimit": {"Min": 350, "Max": 925}}}}
    resources = {
        **only_system(Actions={"#ComputerSystem.Reset": reset}, **links),
        f"{ROOT}/Chassis/Node0": {"Power": {"@odata.id": f"{ROOT}/Chassis/Node0/Power"}},
        f"{ROOT}/Chassis/Node0/Power": {"PowerControl": [{"Name": "Rectifier"}, control | bounds]},
    }
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        await controller.set_power("off")
        assert bmc.sent("POST", f"{SYSTEM}/Actions/Reset")[0].json == {"ResetType": "Off"}
        (limit,) = await controller.power_limits()
        assert (limit.least, limit.most, limit.watts, limit.via) == (350, 925, None, "PowerControl")
        with pytest.raises(BadRequest, match="350 to 925"):
            await controller.set_power_limit(limit.id, 100)
        await controller.set_power_limit(limit.id, 500)
        assert sent(bmc) == {"PowerControl": [{}, {"PowerLimit": {"LimitInWatts": 500}}]}


async def test_a_bmc_that_shows_no_place_for_a_boot_uri_is_not_given_one(client):
    async with OddBmc(only_system(Boot={"BootSourceOverrideTarget": "None"})) as bmc:
        with pytest.raises(NotOffered, match="DHCP"):
            await RedfishBmc(client, bmc.address).set_boot(Boot(target="http", uri="http://10.0.0.1/x.efi"))
        assert bmc.sent("PATCH") == []


# -- media


async def test_a_drive_without_actions_is_changed_itself(client):
    """Lenovo before 2019; without Inserted it does not attach."""
    drives = f"{MANAGER}/VirtualMedia"
    resources = {
        **only_system(**MANAGED),
        MANAGER: {"VirtualMedia": {"@odata.id": drives}},
        drives: {"Members": [{"@odata.id": f"{drives}/EXT1"}]},
        f"{drives}/EXT1": {"MediaTypes": ["CD", "DVD"], "Image": "http://10.0.0.1/old.iso", "Inserted": True},
    }
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        await controller.insert_media("http://10.0.0.1/new.iso")
        assert sent(bmc) == {"Image": "http://10.0.0.1/new.iso", "Inserted": True}
        await controller.insert_media("")
        assert sent(bmc) == {"Image": None, "Inserted": False}


# -- syslog


async def test_dell_keeps_its_log_servers_in_the_managers_attributes(client):
    attributes = f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"
    listed = [{"@odata.id": f"{MANAGER}/Oem/Dell/DellAttributes/System.Embedded.1"}, {"@odata.id": attributes}]
    resources = {
        ROOT: {"Oem": {"Dell": {}}},
        **only_system(**MANAGED),
        MANAGER: {
            "NetworkProtocol": {"@odata.id": f"{MANAGER}/NetworkProtocol"},
            "Links": {"Oem": {"Dell": {"DellAttributes": listed}}},
        },
        f"{MANAGER}/NetworkProtocol": {"NTP": {"NTPServers": ["", "a.example", ""]}},
        attributes: {"Attributes": {"SysLog.1.Server1": "log1", "SysLog.1.Server2": ""}},
    }
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        assert await controller.settings() == ServiceSettings(ntp=("a.example",), syslog=("log1",))
        await controller.set_settings(ServiceSettings(syslog=("log2",)))
        assert sent(bmc, attributes) == {
            "Attributes": {
                "SysLog.1.Server1": "log2",
                "SysLog.1.Server2": "",
                "SysLog.1.Server3": "",
                "SysLog.1.SysLogEnable": "Enabled",
            }
        }


async def test_hpe_keeps_its_log_server_in_its_corner_of_the_network_protocol(client):
    oem = {"Hpe": {"RemoteSyslogEnabled": True, "RemoteSyslogServer": "log1"}}
    resources = {
        ROOT: {"Oem": {"Hpe": {}}},
        **only_system(**MANAGED),
        MANAGER: {"NetworkProtocol": {"@odata.id": f"{MANAGER}/NetworkProtocol"}},
        f"{MANAGER}/NetworkProtocol": {"Oem": oem},
    }
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        assert (await controller.settings()).syslog == ("log1",)
        await controller.set_settings(ServiceSettings(syslog=()))
        assert sent(bmc) == {"Oem": {"Hpe": {"RemoteSyslogEnabled": False, "RemoteSyslogServer": ""}}}
        with pytest.raises(BadRequest, match="one server"):
            await controller.set_settings(ServiceSettings(syslog=("a", "b")))
        with pytest.raises(NotOffered, match="time"):
            await controller.set_settings(ServiceSettings(ntp=("a",)))


# -- firmware and BIOS


async def test_an_image_is_pushed_plainly_where_there_are_no_parts(client):
    """Before 2019: HttpPushUri, with targets and apply time set beforehand."""
    update = f"{ROOT}/UpdateService"
    resources = {
        ROOT: {"UpdateService": {"@odata.id": update}},
        **only_system(),
        update: {"HttpPushUri": f"{update}/push", "HttpPushUriTargets": [], "HttpPushUriOptions": {"x": 1}},
    }
    async with OddBmc(resources) as bmc:
        monitor = {"Location": f"{bmc.address}{ROOT}/TaskService/Tasks/7/Monitor"}
        bmc.answers[("POST", f"{update}/push")] = lambda _: web.Response(status=202, headers=monitor)
        task = await RedfishBmc(client, bmc.address).update_firmware(
            image=b"\x00\x01", targets=[f"{update}/FirmwareInventory/BMC"], apply_time="OnReset"
        )
        assert task.id == f"{ROOT}/TaskService/Tasks/7/Monitor" and task.state == "running"
        pushed = bmc.sent("POST", f"{update}/push")[0]
        assert pushed.body == b"\x00\x01" and pushed.headers["Content-Type"] == "application/octet-stream"
        assert sent(bmc) == {
            "HttpPushUriTargets": [f"{update}/FirmwareInventory/BMC"],
            "HttpPushUriOptions": {"HttpPushUriApplyTime": {"ApplyTime": "OnReset"}},
        }


async def test_settings_that_cannot_wait_for_the_restart_are_not_staged(client):
    bios = f"{SYSTEM}/Bios"
    told = {"SettingsObject": {"@odata.id": f"{bios}/Settings"}, "SupportedApplyTimes": ["Immediate"]}
    resources = {
        **only_system(Bios={"@odata.id": bios}),
        bios: {"Attributes": {"A": 1}, "@Redfish.Settings": told},
        f"{bios}/Settings": {"Attributes": {"A": 1}},
    }
    async with OddBmc(resources) as bmc:
        controller = RedfishBmc(client, bmc.address)
        with pytest.raises(NotOffered, match="only Immediate"):
            await controller.stage_bios({"A": 2})
        assert bmc.sent("PATCH") == []
        told["SupportedApplyTimes"] = ["Immediate", "OnReset"]
        await controller.stage_bios({"A": 2})
        expected = {"Attributes": {"A": 2}, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
        assert sent(bmc, f"{bios}/Settings") == expected


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"TaskState": "Running", "PercentComplete": "40"}, "running"),
        ({"TaskState": "Completed", "TaskStatus": "OK"}, "done"),
        ({"TaskState": "Completed", "TaskStatus": "Critical"}, "failed"),
        ({"TaskState": "Exception", "Messages": [{"Message": "bad image"}, 5]}, "failed"),
        ({"Name": "not a task at all"}, "done"),
    ],
)
async def test_what_a_task_says_of_itself_is_understood(client, told, state):
    path = f"{ROOT}/TaskService/Tasks/1"
    async with OddBmc({path: told}) as bmc:
        task = await RedfishBmc(client, bmc.address).task(path)
        assert task.state == state
        assert task.percent == (40 if "PercentComplete" in told else None)
        assert task.messages == (("bad image",) if "Messages" in told else ())


async def test_a_monitor_that_answers_with_an_error_tells_how_the_work_ended(client):
    path = f"{ROOT}/TaskService/Tasks/1/Monitor"
    async with OddBmc({}) as bmc:
        wrong = {"error": {"message": "the image is for another board"}}
        bmc.answers[("GET", path)] = lambda _: web.json_response(wrong, status=400)
        task = await RedfishBmc(client, bmc.address).task(path)
        assert task.state == "failed" and "another board" in task.messages[0]


# -- consoles


async def test_openbmc_has_its_console_where_it_does_not_tell():
    upgraded = web.Application()

    async def console(request: web.Request) -> web.WebSocketResponse:
        assert request.headers["X-Auth-Token"] == "t"
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"obmc login: ")
        async for _ in socket:
            pass
        return socket

    async def rest(request: web.Request) -> web.Response:
        path = request.path.rstrip("/")
        if request.method == "POST":
            return web.json_response({}, headers={"X-Auth-Token": "t", "Location": f"{path}/1"}, status=201)
        found = {ROOT: {"Product": "OpenBMC"}, **only_system(SerialConsole={"MaxConcurrentSessions": 15})}.get(path)
        return web.json_response(found) if found else web.Response(status=404)

    upgraded.router.add_get("/console0", console)
    upgraded.router.add_route("*", "/{path:.*}", rest)
    runner = web.AppRunner(upgraded, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with RedfishClient(Credentials("root", "x")) as client:
        printed = RedfishBmc(client, f"http://127.0.0.1:{runner.addresses[0][1]}").console()
        assert await asyncio.wait_for(anext(printed), 60) == b""
        assert await asyncio.wait_for(anext(printed), 60) == b"obmc login: "
        await printed.aclose()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("console", "words"),
    [
        ({"WebSocket": {"ConsoleURI": "wss://elsewhere.invalid/console"}}, "another host"),
        ({"WebSocket": {"ConsoleURI": "/console", "ServiceEnabled": False}}, "no serial console"),
        ({"WebSocket": {"ConsoleURI": "/redfish/v1/none"}}, "404"),
        ({}, "no serial console"),
    ],
)
async def test_a_console_that_cannot_be_had_says_why(client, console, words):
    async with OddBmc(only_system(SerialConsole=console)) as bmc:
        with pytest.raises(DeviceError, match=words):
            await anext(RedfishBmc(client, bmc.address).console())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_console_that_sends_us_elsewhere_gets_no_token_there(client, status):
    async with OddBmc({}) as thief, OddBmc(only_system(SerialConsole={"WebSocket": {"ConsoleURI": "/tty"}})) as bmc:
        bmc.answers["GET", "/tty"] = lambda _: web.Response(status=status, headers={"Location": f"{thief.address}/tty"})
        with pytest.raises(DeviceError, match=str(status)):
            await anext(RedfishBmc(client, bmc.address).console())
        assert [asked.headers["X-Auth-Token"] for asked in bmc.sent("GET", "/tty")] == ["t"]
        assert thief.asked == []


# -- the log


def logged(*entries: tuple[str, float]) -> dict[str, object]:
    """A system whose log has these entries: id, and seconds from now."""
    now = datetime.now(UTC)
    told = [
        {"@odata.id": f"{LOG}/Entries/{ident}", "Id": ident, "Created": (now + timedelta(seconds=at)).isoformat()}
        for ident, at in entries
    ]
    return {
        **only_system(LogServices={"@odata.id": f"{SYSTEM}/LogServices"}, **MANAGED),
        f"{SYSTEM}/LogServices": {"Members": [{"@odata.id": LOG}]},
        f"{ROOT}/Chassis": {"Members": []},
        LOG: {"Entries": {"@odata.id": f"{LOG}/Entries"}},
        f"{LOG}/Entries": {"Members": told},
        **{str(entry["@odata.id"]): entry for entry in told},
    }


@pytest.mark.parametrize("names", [("1", "2", "3"), ("a", "b", "c")])
async def test_an_entry_from_the_future_hides_none_that_comes_after_it(client, names):
    """A BMC that lost its clock may believe for a while that it is 2099."""
    before, wrong, after = names
    async with OddBmc(logged((before, -60), (wrong, 70 * 365 * 86400.0))) as bmc:
        controller = RedfishBmc(client, bmc.address)
        newest = (await controller.log())[-1].id
        bmc.resources |= logged((before, -60), (wrong, 70 * 365 * 86400.0), (after, 0))
        assert [entry.id for entry in await controller.log(after=newest)] == [after]
