"""All that one can ask of a BMC, over real sockets against the simulator."""

from __future__ import annotations

import asyncio

import pytest

from strata.core.errors import BadRequest, Conflict, DeviceError, NotOffered
from strata.core.state import Fence
from strata.hardware.bmc.protocol import STATE, Bmc, Boot, ServiceSettings, Task
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant


@pytest.fixture
def controller(server, client) -> Bmc:
    return RedfishBmc(client, server.url("n1"))


# -- power


@pytest.mark.parametrize(
    ("node", "action", "sent"),
    [
        ("n1", "graceful-off", "GracefulShutdown"),
        ("n1", "cycle", "PowerCycle"),
        ("n3", "cycle", "ForceRestart"),
        ("n1", "graceful-restart", "GracefulRestart"),
        ("n1", "nmi", "Nmi"),
        ("n3", "off", "ForceOff"),
    ],
)
async def test_an_action_is_the_reset_type_that_the_make_has_for_it(server, client, node, action, sent):
    controller = RedfishBmc(client, server.url(node))
    await controller.set_power("on")
    await controller.set_power(action)
    assert server.bmc(node).resets[1:] == [sent]


@pytest.mark.parametrize("action", ["graceful-off", "graceful-restart", "nmi"])
async def test_grace_never_falls_back_to_force(server, client, action):
    with pytest.raises(NotOffered, match=f"cannot do {action}: it allows only On, ForceOff, PowerCycle"):
        await RedfishBmc(client, server.url("n2")).set_power(action)
    assert server.bmc("n2").resets == []


async def test_an_address_may_name_an_outlet_or_a_chassis(clock, client):
    nodes = SimNodes(4, timing=Timing(scale=0))
    plant = Plant(nodes)
    server = BmcServer(nodes, plant=plant, clock=clock)
    await server.start()
    outlet = server.url("pdu-x1000m0") + "/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A1"
    chassis = server.url("cc-x1000c0") + "/redfish/v1/Chassis/Enclosure"
    for address in (chassis, outlet):
        controller = RedfishBmc(client, address)
        assert await controller.power() == "on"
        await controller.set_power("off", fence=Fence(3, 1))
        assert await controller.power() == "off"
        with pytest.raises(Conflict):
            await controller.set_power("on", fence=Fence(2, 9))
        with pytest.raises(NotOffered, match="nmi"):
            await controller.set_power("nmi")
        with pytest.raises(NotOffered):
            await controller.boot()
        assert (await controller.identity()).protocol == "redfish"
    with pytest.raises(DeviceError, match="no power"):
        await RedfishBmc(client, chassis).set_power("on")
    await RedfishBmc(client, outlet).set_power("on", fence=Fence(3, 2))
    assert plant.outlet_on == [True]
    assert [reading.kind for reading in await RedfishBmc(client, outlet).readings()] == ["power"]
    await client.close()
    await server.stop()


# -- boot, media, light


@pytest.mark.parametrize(
    "boot",
    [
        Boot(target="pxe"),
        Boot(target="pxe", once=False),
        Boot(target="http", uri="http://10.0.0.1/boot.efi"),
        Boot(target="media", uefi=True),
        Boot(target="disk", once=False, uefi=False),
        Boot(target="setup"),
    ],
)
async def test_a_boot_override_is_what_was_asked_for_until_it_is_taken_off(controller, boot):
    await controller.set_boot(boot)
    seen = await controller.boot()
    assert (seen.target, seen.once, seen.uri) == (boot.target, boot.once, boot.uri)
    if boot.uefi is not None:
        assert seen.uefi is boot.uefi
    await controller.set_boot(Boot(target="none"))
    assert (await controller.boot()).target == "none"


async def test_a_uri_for_anything_but_http_is_a_mistake(controller):
    with pytest.raises(BadRequest, match="http"):
        await controller.set_boot(Boot(target="pxe", uri="http://10.0.0.1/boot.efi"))


async def test_an_image_goes_into_the_cd_drive_and_out_again(controller):
    await controller.insert_media("http://10.0.0.1/disk.iso")
    assert [drive.image for drive in await controller.media()] == ["http://10.0.0.1/disk.iso", ""]
    await controller.insert_media("")
    assert [drive.image for drive in await controller.media()] == ["", ""]


async def test_the_identify_light_follows(server, controller):
    for on in (True, False):
        await controller.identify(on)
        assert server.bmc("n1").light is on


# -- readings and log


async def test_readings_have_kinds_units_limits_and_health(server, controller):
    server.bmc("n1").set_reading("CPU1Temp", 97.0)
    readings = {reading.name: reading for reading in await controller.readings()}
    hot = readings["CPU1 Temp"]
    assert (hot.kind, hot.unit, hot.value, hot.health, hot.high) == ("temperature", "Cel", 97.0, "critical", 95.0)
    assert {"temperature", "fan", "power"} <= {reading.kind for reading in readings.values()}


async def test_numbers_as_strings_are_numbers_and_absurd_ones_are_doubted(server, controller):
    server.prank("n1").always = {Trick.STRINGS}
    assert any(reading.value for reading in await controller.readings())
    server.prank("n1").always = {Trick.ABSURD}
    measured = [reading for reading in await controller.readings() if reading.doubt != STATE]
    doubted = [reading for reading in measured if reading.kind == "power"]
    assert doubted and all(reading.value is None and "absurd" in reading.doubt for reading in doubted)


async def test_the_log_is_read_on_from_where_one_was_and_can_be_emptied(server, controller):
    for n in range(5):
        server.bmc("n1").log("warning" if n else "critical", f"event {n}", "Sensor.1.0.Hot", sensor="CPU1 Temp")
    entries = await controller.log()
    assert [entry.message for entry in entries] == [f"event {n}" for n in range(5)]
    assert entries[0].severity == "critical" and entries[0].message_id == "Sensor.1.0.Hot" and entries[0].time
    assert [entry.message for entry in await controller.log(after=entries[1].id, limit=2)] == ["event 2", "event 3"]
    assert [entry.message for entry in await controller.log(limit=1)] == ["event 4"]
    await controller.clear_log()
    assert await controller.log() == []
    assert await controller.log(after=entries[1].id) == []


# -- limits


async def test_a_power_limit_is_set_within_its_bounds_and_taken_off(controller):
    (limit,) = await controller.power_limits()
    assert limit.watts is None and limit.least and limit.most
    await controller.set_power_limit(limit.id, limit.least + 50)
    assert (await controller.power_limits())[0].watts == limit.least + 50
    for watts in (limit.least - 1, limit.most + 1, 0, -5, float("nan"), float("inf")):
        with pytest.raises(BadRequest):
            await controller.set_power_limit(limit.id, watts)
    await controller.set_power_limit(limit.id, None)
    assert (await controller.power_limits())[0].watts is None


@pytest.mark.parametrize(
    "limit", ["/redfish/v1/Chassis/1/Power#/PowerControl/0", "/redfish/v1/Chassis/1/EnvironmentMetrics"]
)
async def test_the_other_two_shapes_of_a_limit_set_the_same_cap(controller, limit):
    await controller.set_power_limit(limit, 400)
    assert (await controller.power_limits())[0].watts == 400
    await controller.set_power_limit(limit, None)
    assert (await controller.power_limits())[0].watts is None


async def test_what_is_no_limit_is_not_written_to(controller):
    for wrong in (
        "http://elsewhere.invalid/redfish/v1/Chassis/1/Power",
        "/redfish/v1/Managers/1",
        "/redfish/v1/Chassis/2/EnvironmentMetrics",
        "/redfish/v1/Chassis/1/../2/EnvironmentMetrics",
        "",
    ):
        with pytest.raises(BadRequest, match="not a power limit of this node"):
            await controller.set_power_limit(wrong, 100)
    with pytest.raises(NotOffered):
        await controller.set_power_limit("/redfish/v1/Chassis/1/Sensors", 100)


# -- firmware settings and firmware


async def test_settings_are_staged_and_take_effect_at_the_next_restart(controller):
    await controller.set_power("on")
    before = await controller.bios()
    assert before.current["Sriov"] is False and before.staged == {}
    assert await controller.stage_bios({"Sriov": True}) == Task(id="", state="done")
    staged = await controller.bios()
    assert staged.current["Sriov"] is False and staged.staged == {"Sriov": True}
    await controller.set_power("cycle")
    after = await controller.bios()
    assert after.current["Sriov"] is True and after.staged == {}


async def test_a_setting_that_is_not_there_or_of_another_type_is_not_sent(server, controller):
    await controller.bios()
    asked = server.requests
    for wrong, words in (({"sriov": True}, "similar: Sriov"), ({"Sriov": "yes"}, "another type"), ({}, "no settings")):
        with pytest.raises(BadRequest, match=words):
            await controller.stage_bios(wrong)
    assert server.requests <= asked + 6


@pytest.mark.parametrize("how", [{"uri": "http://10.0.0.1/bios.bin"}, {"image": b"new firmware" * 1000}])
async def test_an_update_is_followed_until_it_is_done(clock, how):
    """By a BMC that takes its time, of which none passes while we wait."""
    server = BmcServer(SimNodes(1, names=["n1"]), clock=clock)
    await server.start()
    async with RedfishClient(Credentials("root", "simulated"), clock=clock) as client:
        controller = RedfishBmc(client, server.url("n1"))
        seen: list[Task] = []

        async def pass_time(seconds: float) -> None:
            clock.now += seconds

        task = await controller.update_firmware(**how, apply_time="Immediate")
        assert task.state == "running" and task.id
        pause = 1.0
        while (done := seen[-1] if seen else task).state == "running":
            await pass_time(pause)
            pause = min(30.0, pause * 1.5)
            seen.append(await controller.task(task.id))
        assert done.state == "done"
        assert len(seen) > 1 and [one.percent for one in seen] == sorted(one.percent or 0 for one in seen)
    await server.stop()


async def test_an_update_that_is_accepted_without_a_word_is_unknown(server, controller):
    await controller.firmware()
    server.prank("n1").plan(Trick.ACCEPTED, method="POST")
    task = await controller.update_firmware(uri="http://10.0.0.1/bios.bin")
    assert (task.id, task.state) == ("", "unknown")
    with pytest.raises(NotOffered):
        await controller.task(task.id)
    assert (await controller.task("/redfish/v1/TaskService/Tasks/999")).state == "unknown"


async def test_what_an_update_cannot_do_is_said_before_it_begins(server, controller):
    for wrong in ({}, {"uri": "http://x", "image": b"y"}):
        with pytest.raises(BadRequest, match="not both"):
            await controller.update_firmware(**wrong)
    with pytest.raises(NotOffered, match="only by HTTP, HTTPS"):
        await controller.update_firmware(uri="tftp://10.0.0.1/bios.bin")
    with pytest.raises(NotOffered, match="cannot apply Tomorrow"):
        await controller.update_firmware(uri="http://10.0.0.1/bios.bin", apply_time="Tomorrow")
    assert all(firmware.version for firmware in await controller.firmware())


# -- accounts and settings


async def test_a_password_that_was_changed_is_the_one_that_works(server, clock, client):
    address = server.url("n1")
    await RedfishBmc(client, address).set_password("root", "another-secret-1")
    async with RedfishClient(Credentials("root", "another-secret-1"), clock=clock) as new:
        assert await RedfishBmc(new, address).power() == "off"
    async with RedfishClient(Credentials("root", "simulated"), clock=clock) as old:
        with pytest.raises(DeviceError, match="refused"):
            await RedfishBmc(old, address).power()


async def test_a_password_that_is_too_short_is_not_sent(controller):
    with pytest.raises(BadRequest, match="characters"):
        await controller.set_password("root", "x")


async def test_time_and_log_servers_are_set_and_the_rest_is_left(controller):
    await controller.set_settings(ServiceSettings(ntp=("a.example", "b.example")))
    assert await controller.settings() == ServiceSettings(ntp=("a.example", "b.example"), syslog=())
    await controller.set_settings(ServiceSettings(syslog=("log1", "log2:5514")))
    assert await controller.settings() == ServiceSettings(ntp=("a.example", "b.example"), syslog=("log1", "log2:5514"))
    await controller.set_settings(ServiceSettings(ntp=(), syslog=("log2:5514",)))
    assert await controller.settings() == ServiceSettings(ntp=(), syslog=("log2:5514",))


# -- what goes on and on


async def next_of(source) -> object:
    return await asyncio.wait_for(anext(source), 60)


async def test_a_console_prints_until_it_is_closed_and_breaks_off_with_an_error(server, controller):
    console = controller.console()
    assert await next_of(console) == b""
    waiting = asyncio.ensure_future(next_of(console))
    while not waiting.done():
        server.bmc("n1").print("login: ")
        await asyncio.wait([waiting], timeout=0.01)
    assert b"login: " in await waiting
    await server.stop()
    with pytest.raises(DeviceError, match="broke off"):
        while True:
            await next_of(console)


async def test_what_is_typed_at_a_console_reaches_the_node(server, controller):
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    console = controller.console(keys)
    assert await next_of(console) == b""
    for piece in (b"root\r", b"\x03", bytes(range(256))):
        keys.put_nowait(piece)
    for _ in range(6000):
        if len(server.bmc("n1").console.typed) >= 5 + 1 + 256:
            break
        await asyncio.sleep(0.01)
    assert server.bmc("n1").console.typed == b"root\r\x03" + bytes(range(256))
    await console.aclose()


async def test_events_are_streamed_and_subscriptions_are_listed_once(server, client):
    address = server.url("n1")
    service = RedfishSubscriptions(client)
    path = await service.subscribe(address, "https://127.0.0.1:9/in", "strata-1")
    assert await service.listening(address) == [(path, "https://127.0.0.1:9/in", "strata-1")]
    await service.unsubscribe(address, path)
    await service.unsubscribe(address, path)
    assert await service.listening(address) == []
    events = service.stream(address)
    waiting = asyncio.ensure_future(next_of(events))
    while not waiting.done():
        server.bmc("n1").log("critical", "it burns", "Sensor.1.0.Hot")
        await asyncio.wait([waiting], timeout=0.01)
    event = await waiting
    assert event["Events"][0]["Message"] == "it burns"
    await events.aclose()


async def test_a_session_that_ran_out_is_renewed_for_a_console_too(server, clock, controller):
    await controller.power()
    clock.now += 1000
    console = controller.console()
    assert await next_of(console) == b""
    waiting = asyncio.ensure_future(next_of(console))
    while not waiting.done():
        server.bmc("n1").print("x")
        await asyncio.wait([waiting], timeout=0.01)
    assert await waiting
    await console.aclose()
    assert len(server.bmc("n1").sessions) == 1
