"""A chassis of real QEMU nodes: what Redfish says of them is what their processes do, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from qemu_support import GREETING, OBEYS, RESETS, inside, make_medium, printed, remains, until

from strata.cli.main import run
from strata.cli.up import virtual as up_virtual
from strata.core.errors import BadRequest, Conflict, DeviceError, NotFound
from strata.core.host import process as ps
from strata.hardware.bmc.protocol import Boot
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.discovery.crawl import crawl
from strata.virtual.qemu import description, network
from strata.virtual.qemu.create import add, create, destroy, enter, namespace, running, start, stop
from strata.virtual.qemu.description import Description, Options, chassis_id
from strata.virtual.redfish.bmc import Account

pytestmark = [pytest.mark.server, pytest.mark.slow]
MEMORY = 160


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a chassis with one BIOS node (n0001) and one with UEFI (n0002)."""
    folder = tmp_path_factory.mktemp("chassis") / "virtual"
    create(Options(directory=folder, nodes=2, uefi=1, memory=MEMORY))
    yield folder
    destroy(folder)


@pytest.fixture
def chassis(place: Path) -> Iterator[Description]:
    found = description.read(place)
    with inside(found.namespace):
        yield found
    for process in running(place).values():
        ps.stop(process, grace=0)


@pytest.fixture
async def client(place: Path, chassis: Description) -> AsyncIterator[RedfishClient]:
    found = _client(place, chassis)
    yield found
    await found.close()


@pytest.fixture
def bios(client: RedfishClient, chassis: Description) -> RedfishBmc:
    return RedfishBmc(client, chassis.nodes[0].bmc)


@pytest.fixture
def uefi(client: RedfishClient, chassis: Description) -> RedfishBmc:
    return RedfishBmc(client, chassis.nodes[1].bmc)


@pytest.fixture
async def medium(tmp_path: Path, chassis: Description) -> AsyncIterator[str]:
    """Where a bootable image is served, on the chassis's own network."""
    image = make_medium(tmp_path, RESETS)
    app = web.Application()
    app.router.add_static("/", tmp_path)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, chassis.server, 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://{chassis.server}:{port}/{image.name}"
    await runner.cleanup()


def _client(place: Path, chassis: Description) -> RedfishClient:
    password = (place / description.PASSWORD).read_text().strip()
    return RedfishClient(Credentials(chassis.user, password))


def _log(place: Path, node: str) -> Path:
    return place / description.NODES / node / "console.log"


async def test_power_is_whether_the_process_lives(bios, place):
    assert await bios.power() == "off"
    assert running(place) == {}
    await bios.set_power("on")
    assert await bios.power() == "on"
    first = running(place)["n0001"]

    await bios.set_power("cycle")
    assert not first.alive
    second = running(place)["n0001"]
    assert second.alive

    os.kill(second.pid, signal.SIGKILL)
    await until(lambda: not second.alive)
    assert await bios.power() == "off"
    assert [entry.message_id.rpartition(".")[2] for entry in await bios.log()][-1] == "ResourcePoweredOff"

    await bios.set_power("on")
    await bios.set_power("off")
    assert await bios.power() == "off"
    assert running(place) == {}


async def test_the_controller_tells_what_the_firmware_tells_the_guest(bios, chassis, client):
    node = chassis.nodes[0]
    told = await bios.identity()
    assert (told.uuid, told.serial) == (node.uuid, node.serial)
    system = "/redfish/v1/Systems/1"
    port = (await client.get(node.bmc, f"{system}/EthernetInterfaces/eth0")).body
    assert port["MACAddress"] == node.mac.upper()
    assert (await client.get(node.bmc, system)).body["MemorySummary"]["TotalSystemMemoryGiB"] == MEMORY / 1024


async def test_a_crawl_finds_what_qemu_gives_the_node(client, chassis):
    node = chassis.nodes[0]
    found = await crawl(client, node.bmc)
    text = str(found)
    assert all(word in text for word in (node.uuid, node.serial, node.mac, "Emulated x86-64", "DIMM1"))


async def test_what_is_typed_on_the_console_reaches_the_guest(place, chassis, bios):
    password = (place / description.PASSWORD).read_text().strip()
    auth = {"Authorization": Account(chassis.user, password).basic}
    url = f"{chassis.nodes[0].bmc}/redfish/v1/Systems/1/SerialConsole"
    async with asyncio.timeout(150), aiohttp.ClientSession(headers=auth) as http, http.ws_connect(url) as console:
        await bios.set_power("on")
        heard = b""
        for awaited, typed in ((b"Ctrl-B for the iPXE command line", b"\x02"), (b"iPXE>", b"")):
            while awaited not in heard:
                heard += (await console.receive()).data
            await console.send_bytes(typed)
        # The guest restarts itself, and a medium for once would be used up by that.
        await bios.set_boot(Boot(target="media"))
        await console.send_bytes(b"reboot\r")
        while heard.count(b"SeaBIOS") < 2:
            heard += (await console.receive()).data
        while (await bios.boot()).target != "none":  # noqa: ASYNC110 - the chassis has no event for it
            await asyncio.sleep(0.05)


async def test_a_node_boots_from_the_network_and_its_console_is_heard(bios, place):
    heard = b""
    async with asyncio.timeout(150):
        console = bios.console()
        await anext(console)
        await bios.set_power("on")
        while b"Configuring" not in heard:
            heard += await anext(console)
        await console.aclose()
    assert b"iPXE" in heard
    await until(lambda: "iPXE" in printed(_log(place, "n0001")))
    assert {reading.name: reading.value for reading in await bios.readings()}["Total power"] >= 60


async def test_a_medium_is_booted_once_and_then_the_network_again(bios, place, medium):
    await bios.insert_media(medium)
    assert [drive.image for drive in await bios.media()] == [medium]
    await bios.set_boot(Boot(target="media"))
    before = len(printed(_log(place, "n0001")))
    await bios.set_power("on")
    assert (await bios.boot()).target == "none"  # for once, and that has begun
    # The medium resets the machine: what follows is the guest's own restart.
    await until(lambda: "Configuring" in printed(_log(place, "n0001"))[before:])
    said = printed(_log(place, "n0001"))[before:]
    assert said.count(GREETING) == 1

    await bios.set_boot(Boot(target="media", once=False))
    before = len(said)
    await bios.set_power("cycle")
    await until(lambda: printed(_log(place, "n0001"))[before:].count(GREETING) >= 2)
    await bios.set_boot(Boot(target="none"))
    await bios.insert_media("")
    assert [drive.image for drive in await bios.media()] == [""]
    assert not (place / description.NODES / "n0001" / "medium.iso").exists()


async def test_an_image_that_cannot_be_had_or_is_a_file_of_this_machine_is_refused(bios, medium):
    for image in ("file:///etc/passwd", medium + ".not"):
        with pytest.raises(DeviceError):
            await bios.insert_media(image)
    assert [drive.image for drive in await bios.media()] == [""]


async def test_a_guest_that_is_asked_to_shut_down_does_and_comes_back_if_it_shall(bios, place, medium, tmp_path):
    image = make_medium(tmp_path, OBEYS)
    log = _log(place, "n0001")
    await bios.insert_media(f"{medium.rpartition('/')[0]}/{image.name}")
    await bios.set_boot(Boot(target="media", once=False))
    before = len(printed(log))
    await bios.set_power("on")
    await until(lambda: GREETING in printed(log)[before:])
    first = running(place)["n0001"]

    await bios.set_power("graceful-restart")
    await until(lambda: printed(log)[before:].count(GREETING) == 2)
    assert not first.alive

    second = running(place)["n0001"]
    await bios.set_power("graceful-off")
    await until(lambda: not second.alive)
    assert await bios.power() == "off"
    with pytest.raises(DeviceError, match="off"):
        await bios.set_power("nmi")
    await bios.set_boot(Boot(target="none"))
    await bios.insert_media("")


async def test_every_link_below_the_service_root_leads_to_a_resource_that_names_itself(client, chassis):
    address = chassis.nodes[1].bmc
    waiting, seen = ["/redfish/v1/"], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        body = (await client.get(address, path)).body
        assert body["@odata.id"] == path
        assert body["@odata.type"].startswith("#")
        assert body["Name"]
        waiting += [link for link in _links(body) if "#" not in link]
    assert {"/redfish/v1/Systems/1/VirtualMedia/CD1", "/redfish/v1/Chassis/1/Sensors/TotalPower"} <= seen


def _links(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["@odata.id"]] if isinstance(value.get("@odata.id"), str) else []
        return own + [link for member in value.values() for link in _links(member)]
    return [link for member in value for link in _links(member)] if isinstance(value, list | tuple) else []


async def test_uefi_firmware_boots_over_http_once_and_over_pxe_otherwise(uefi, place):
    log = _log(place, "n0002")
    await uefi.set_boot(Boot(target="http"))
    await uefi.set_power("on")
    await until(lambda: "Start HTTP Boot" in printed(log))
    assert "PXE" not in printed(log)
    assert (await uefi.boot()).target == "none"
    await uefi.set_power("cycle")
    await until(lambda: "Start PXE" in printed(log))
    # From the usual order to itself, to all others and back, while it runs.
    for target in ("pxe", "none", "media", "media", "http", "media", "pxe", "http", "none"):
        await uefi.set_boot(Boot(target=target))
        assert (await uefi.boot()).target == target


async def test_nodes_go_on_without_the_chassis_and_are_found_again(place, chassis, client, bios):
    await bios.set_power("on")
    await bios.set_boot(Boot(target="media"))
    node = running(place)["n0001"]
    process = ps.load(place / description.PROCESS)
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: not process.alive)
    ps.reap(process)
    assert node.alive
    (place / description.NODES / "n0001" / "qemu.process").unlink()  # not even the record is needed

    await asyncio.to_thread(start, place)
    async with _client(place, chassis) as again:
        controller = RedfishBmc(again, chassis.nodes[0].bmc)
        assert await controller.power() == "on"
        assert (await controller.boot()).target == "media"
        await controller.set_power("off")
    await until(lambda: not node.alive)


async def test_a_second_chassis_in_the_same_folder_is_refused(place, chassis):
    with pytest.raises(Conflict, match="there is a virtual chassis already"):
        create(Options(directory=place))


def test_two_chassis_do_not_meet_and_leave_nothing(tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    found = [create(Options(directory=place, nodes=1, memory=MEMORY)) for place in places]
    try:
        assert found[0].namespace != found[1].namespace
        assert found[0].server == found[1].server
        assert {node.mac for chassis in found for node in chassis.nodes} == {c.nodes[0].mac for c in found}
        with inside(found[0].namespace), socket.create_server((found[0].server, 0)) as listener:
            address = listener.getsockname()
            socket.create_connection(address, timeout=60).close()
        with inside(found[1].namespace), pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=60)
    finally:
        for place in places:
            assert destroy(place).left == ()
    for place in places:
        assert remains(chassis_id(place)) == []
        assert not place.exists()
        with pytest.raises(NotFound):
            namespace(place)


def test_the_commands_make_show_kill_and_take_away_a_chassis(tmp_path, capsys):
    def strata(*words: str) -> tuple[int, str]:
        code = run([*words[:2], "--dir", str(tmp_path / "virtual"), *words[2:]])
        said = capsys.readouterr()
        return code, said.out + said.err

    code, said = strata("virtual", "create", "--nodes", "2", "--uefi", "1", "--memory", str(MEMORY))
    assert code == 0, said
    try:
        assert "strata virtual add adds machines" in strata("virtual", "create")[1]
        rows = json.loads(strata("virtual", "list", "--json")[1])
        assert [(row["name"], row["firmware"], row["power"]) for row in rows] == [
            ("n0001", "bios", "off"),
            ("n0002", "uefi", "off"),
        ]
        assert "n0001: it is off" in strata("virtual", "kill", "n1")[1], "zeros need not be typed"
        assert "the chassis has n[0001-0002]" in strata("virtual", "kill", "nobody")[1]
        assert strata("virtual", "start", "n0001") == (0, "switched n0001 on\n")
        assert strata("virtual", "start", "n[0001-0002]") == (0, "n0001 was on already\nswitched n0002 on\n")
        assert set(running(tmp_path / "virtual")) == {"n0001", "n0002"}
        assert "the chassis has" in strata("virtual", "start", "n0001", "nobody")[1]
        assert "killed n0001" in strata("virtual", "kill", "*")[1]
        assert running(tmp_path / "virtual") == {}
        assert "answer" in strata("virtual", "start")[1]
        assert strata("virtual", "add") == (0, "added n0003, off\n")
        ps.find(os.getpid()).save(tmp_path / up_virtual.bg.SERVICE)  # as if a cluster ran with them
        assert "strata virtual add adds a machine" in strata("virtual", "create")[1]
        assert "strata down --delete removes all of it" in strata("virtual", "destroy")[1]
        (tmp_path / up_virtual.bg.SERVICE).unlink()
    finally:
        code, said = strata("virtual", "destroy")
    assert (code, "processes ended: 1" in said) == (0, True)
    assert "nothing to destroy" in strata("virtual", "destroy")[1]
    assert "no virtual chassis here" in strata("virtual", "list")[1]


def test_this_machine_reaches_the_server_and_a_program_can_be_started_inside(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        with inside(namespace(place)):
            listener = socket.create_server(("", 0))
        with listener:
            socket.create_connection((found.link.inside, listener.getsockname()[1]), timeout=60).close()
        log = tmp_path / "inside.log"
        process = enter(namespace(place), ["/bin/cat", "/proc/net/dev"], {}, log)
        os.waitpid(process.pid, 0)
        assert {"br0", "tap1", "host0"} <= {line.partition(":")[0].strip() for line in log.read_text().splitlines()}
    finally:
        destroy(place)


async def test_a_node_that_cannot_start_says_why(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        (place / description.NODES / "n0001").rmdir()
        with pytest.raises(DeviceError, match="The request failed"):
            await _switch_on(place, found)
        assert running(place) == {}
    finally:
        destroy(place)


async def test_after_a_restart_of_this_machine_a_chassis_starts_with_its_network(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        ps.stop(ps.load(place / description.PROCESS), grace=5)
        network.remove(found.id)
        assert remains(found.id) == []
        start(place)
        await _switch_on(place, found)
        assert set(running(place)) == {"n0001"}
    finally:
        destroy(place)
    assert remains(found.id) == []


async def test_a_chassis_that_was_stopped_starts_with_all_that_it_had(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        await _switch_on(place, found)
        password = (place / description.PASSWORD).read_text()
        assert len(stop(place).stopped) == 2
        assert remains(found.id) == []
        assert stop(place).stopped == ()
        start(place)
        assert running(place) == {}
        await _switch_on(place, found)
        assert (place / description.PASSWORD).read_text() == password
    finally:
        destroy(place)


async def test_machines_are_added_while_others_run(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        await _switch_on(place, found)
        before = running(place)
        more = add(place, 2, 1)
        assert [(node.name, node.firmware, node.tap) for node in more] == [
            ("n0002", "bios", "tap2"),
            ("n0003", "uefi", "tap3"),
        ]
        assert running(place) == before, "who runs is not disturbed"
        found = description.read(place)
        assert len({node.mac for node in found.nodes} | {node.address for node in found.nodes}) == 6
        await _switch_on(place, msgspec.structs.replace(found, nodes=more))
        assert set(running(place)) == {"n0001", "n0002", "n0003"}
        with pytest.raises(BadRequest, match="3 nodes are there, and 200 is the most"):
            add(place, 198, 0)
    finally:
        destroy(place)
    assert remains(found.id) == []


def test_up_begins_anew_where_an_earlier_one_was_killed_while_it_made_the_chassis(tmp_path):
    place = tmp_path / up_virtual.bg.CHASSIS
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    try:
        ps.stop(ps.load(place / description.PROCESS), grace=5)
        (place / description.FILE).unlink()  # written last
        with pytest.raises(Conflict, match="already"):
            create(Options(directory=place, nodes=1, memory=MEMORY))
        assert len(up_virtual._chassis(tmp_path, 2, 0).nodes) == 2
        assert running(place) == {}
    finally:
        destroy(place)
    assert remains(found.id) == []


def test_stop_and_down_say_what_became_of_the_machines(tmp_path, capsys):
    create(Options(directory=tmp_path / up_virtual.bg.CHASSIS, nodes=1, memory=MEMORY))

    def said(*words: str) -> str:
        assert run([*words, "--state-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out

    assert "stopped the virtual machines and removed their network" in said("stop")
    assert "the virtual machines were already stopped" in said("stop")
    assert "the virtual machines were already stopped" in said("down", "--delete")
    assert not (tmp_path / up_virtual.bg.CHASSIS).exists()


def test_destroy_spares_a_folder_that_is_not_a_chassis(tmp_path):
    kept = tmp_path / "nodes" / "precious"
    kept.parent.mkdir()
    kept.write_text("mine")
    with pytest.raises(Conflict, match="left as it is"):
        destroy(tmp_path)
    assert kept.read_text() == "mine"


def test_destroy_leaves_nothing_after_everything_was_killed_and_the_file_is_half_written(tmp_path):
    place = tmp_path / "virtual"
    found = create(Options(directory=place, nodes=1, memory=MEMORY))
    asyncio.run(_switch_on(place, found))
    (node,) = running(place).values()
    process = ps.load(place / description.PROCESS)
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    whole = (place / description.FILE).read_bytes()
    (place / description.FILE).write_bytes(whole[: len(whole) // 2])
    assert node.alive
    assert len(remains(found.id)) == 3
    destroy(place)
    assert not node.alive
    assert remains(found.id) == []
    assert not place.exists()
    assert destroy(place) == ((), ())


async def _switch_on(place: Path, found: Description) -> None:
    with inside(found.namespace):
        async with _client(place, found) as client:
            for node in found.nodes:
                await RedfishBmc(client, node.bmc).set_power("on")
