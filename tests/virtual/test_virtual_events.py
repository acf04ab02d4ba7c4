"""What simulated controllers say by themselves: their log, events pushed, streamed and as syslog, the console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes

RESET = "Systems/1/Actions/ComputerSystem.Reset"
ENTRIES = "Systems/1/LogServices/SEL/Entries"


class Receiver:
    """Takes events; refuses the first ``refuse`` of them."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[dict] = asyncio.Queue()
        self.refuse = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=500)
        self.events.put_nowait(await request.json())
        return web.Response(status=204)

    async def next(self) -> dict:
        return await asyncio.wait_for(self.events.get(), 60)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/in", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield found
    await runner.cleanup()


async def test_the_log_keeps_what_happened_until_it_is_cleared_and_ids_are_not_used_again(ask, room):
    bmc = room.bmc("n00001")
    assert bmc.log("critical", "Uncorrectable memory error", "Memory.1.0.ECC", sensor="Memory") == "1"
    bmc.log("ok", "All is well")
    _, entries = await ask("n00001", "GET", ENTRIES)
    assert [(e["Id"], e["Severity"], e["Message"]) for e in entries["Members"]] == [
        ("1", "Critical", "Uncorrectable memory error"),
        ("2", "OK", "All is well"),
    ]
    assert (await ask("n00001", "GET", f"{ENTRIES}/1"))[1]["MessageId"] == "Memory.1.0.ECC"
    clear = "Systems/1/LogServices/SEL/Actions/LogService.ClearLog"
    assert (await ask("n00001", "POST", clear, {}))[0] == 204
    assert (await ask("n00001", "GET", ENTRIES))[1]["Members"] == []
    assert bmc.log("warning", "Again") == "3"


async def test_the_oldest_entry_makes_room_in_a_full_log(room):
    bmc = room.bmc("n00001")
    for i in range(1001):
        bmc.log("ok", f"entry {i}")
    assert len(bmc.journal.entries) == 1000
    assert next(iter(bmc.journal.entries)) == "2"


async def test_a_subscriber_is_pushed_log_entries_power_changes_and_crossed_thresholds(ask, room, receiver):
    wish = {"Destination": receiver.url, "Protocol": "Redfish", "Context": "mine"}
    status, made = await ask("n00001", "POST", "EventService/Subscriptions", wish)
    assert (status, made["Context"]) == (201, "mine")

    bmc = room.bmc("n00001")
    bmc.log("warning", "Fan is loud", "OEM.1.0.Fan")
    event = await receiver.next()
    assert event["Context"] == "mine"
    (record,) = event["Events"]
    assert (record["MessageSeverity"], record["Message"], record["MessageId"]) == (
        *("Warning", "Fan is loud", "OEM.1.0.Fan"),
    )
    assert (await ask("n00001", "GET", record["LogEntry"]["@odata.id"][12:]))[0] == 200

    await ask("n00001", "POST", RESET, {"ResetType": "On"})
    (record,) = (await receiver.next())["Events"]
    assert record["MessageId"] == "ResourceEvent.1.3.ResourcePoweredOn"
    assert record["OriginOfCondition"] == {"@odata.id": "/redfish/v1/Systems/1"}

    for value, severity in ((96.0, "Critical"), (40.0, "OK")):
        bmc.set_reading("CPU1Temp", value)
        (record,) = (await receiver.next())["Events"]
        assert (record["MessageSeverity"], record["MessageArgs"][0]) == (severity, "CPU1 Temp")
    bmc.set_reading("CPU1Temp", 41.0)
    assert receiver.events.empty()

    assert (await ask("n00001", "DELETE", made["@odata.id"][12:]))[0] == 204
    bmc.log("ok", "Nobody hears this")
    assert room.outbox.delivered == 4


async def test_a_push_is_tried_again_and_then_given_up(ask, room, receiver, monkeypatch):
    monkeypatch.setattr("strata.virtual.bmc.outbox._RETRY_AFTER", 0.001)
    wish = {"Destination": receiver.url, "Protocol": "Redfish"}
    await ask("n00001", "POST", "EventService/Subscriptions", wish)
    receiver.refuse = 3
    room.bmc("n00001").log("ok", "At last")
    assert (await receiver.next())["Events"][0]["Message"] == "At last"
    receiver.refuse = 4
    room.bmc("n00001").log("ok", "Never")
    room.bmc("n00001").log("ok", "Later")
    assert (await receiver.next())["Events"][0]["Message"] in ("Later", "Never")


async def test_subscriptions_are_limited_checked_filtered_and_lost_when_the_controller_restarts(ask, room):
    bad = [
        {"Destination": "http://127.0.0.1:9/x"},
        {"Destination": "ftp://127.0.0.1/x", "Protocol": "Redfish"},
        {"Destination": "http://127.0.0.1:9/x", "Protocol": "Carrier pigeon"},
        {"Destination": "http://127.0.0.1:9/x", "Protocol": "Redfish", "Colour": "blue"},
    ]
    for wish in bad:
        assert (await ask("n00001", "POST", "EventService/Subscriptions", wish))[0] == 400
    wish = {"Destination": "http://127.0.0.1:9/x", "Protocol": "Redfish", "RegistryPrefixes": ["SensorEvent"]}
    for status in [201] * 16 + [503]:
        assert (await ask("n00001", "POST", "EventService/Subscriptions", wish))[0] == status
    room.bmc("n00001").log("ok", "Of no interest")
    assert room.outbox._under_way == set()
    await ask("n00001", "POST", "Managers/1/Actions/Manager.Reset", {"ResetType": "ForceRestart"})
    assert (await ask("n00001", "GET", "EventService/Subscriptions"))[1]["Members"] == []


async def test_events_are_streamed_to_whoever_holds_the_connection(ask, room, user):
    _, service = await ask("n00001", "GET", "EventService")
    async with user.get(room.url("n00001") + service["ServerSentEventUri"]) as stream:
        assert stream.content_type == "text/event-stream"
        assert await stream.content.readuntil(b"\n\n") == b": welcome\n\n"
        room.bmc("n00001").log("critical", "Smoke")
        number, data, *_ = (await stream.content.readuntil(b"\n\n")).split(b"\n")
        assert number == b"id: 1"
        assert json.loads(data.removeprefix(b"data: "))["Events"][0]["Message"] == "Smoke"
        await ask("n00001", "POST", RESET, {"ResetType": "On"})
        assert b"ResourcePoweredOn" in await stream.content.readuntil(b"\n\n")


async def test_a_syslog_subscription_gets_a_datagram(ask, room):
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    class Listener(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            heard.put_nowait(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Listener, local_addr=("127.0.0.1", 0))
    where = f"syslog://127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    status, _ = await ask(
        "n00001", "POST", "EventService/Subscriptions", {"Destination": where, "Protocol": "SyslogUDP"}
    )
    assert status == 201
    room.bmc("n00001").log("critical", "Smoke")
    line = (await asyncio.wait_for(heard.get(), 60)).decode()
    assert line.startswith("<26>1 ")
    assert line.endswith(" n00001 bmc - - - Smoke")
    transport.close()


async def test_a_change_that_takes_time_is_told_when_it_has_happened(user, receiver):
    room = BmcServer(SimNodes(1))
    now = 0.0
    room.clock = lambda: now
    await room.start()
    base = f"{room.url('n00001')}/redfish/v1"
    await (
        await user.post(f"{base}/EventService/Subscriptions", json={"Destination": receiver.url, "Protocol": "Redfish"})
    ).read()
    await (await user.post(f"{base}/{RESET}", json={"ResetType": "On"})).read()
    room.beat()
    assert room.outbox._under_way == set()
    now = 60.0
    room.beat()
    assert (await receiver.next())["Events"][0]["MessageId"].endswith("PoweredOn")
    await room.stop()


# -- the console


async def _read_until(socket: aiohttp.ClientWebSocketResponse, word: bytes) -> bytes:
    text = b""
    while word not in text:
        text += await asyncio.wait_for(socket.receive_bytes(), 60)
    return text


async def test_the_console_prints_the_start_of_the_node_and_what_tests_add(ask, room, user):
    _, system = await ask("n00001", "GET", "Systems/1")
    uri = room.url("n00001") + system["SerialConsole"]["WebSocket"]["ConsoleURI"]
    async with user.ws_connect(uri) as one, user.ws_connect(uri) as other:
        await ask("n00001", "POST", RESET, {"ResetType": "On"})
        room.bmc("n00001").print("x" * 70_000 + " the end\n")
        for socket in (one, other):
            text = await _read_until(socket, b"the end")
            assert b"power-on self-test" in text
            assert text.endswith(b"the end\r\n")
        await one.send_str("root\r")
        await one.ping()
        await ask("n00001", "POST", RESET, {"ResetType": "Nmi"})
        assert b"Kernel panic" in await _read_until(one, b"panic")
        async with asyncio.timeout(60):
            while room.bmc("n00001").console.typed != b"root\r":  # noqa: ASYNC110 (what is typed has no event)
                await asyncio.sleep(0.02)
    async with user.ws_connect(uri) as again:
        room.bmc("n00001").console.break_off()
        assert (await again.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert not room.bmc("n00001").console.watched


async def test_the_console_is_for_those_who_may_use_the_controller_and_speak_websocket(ask, room):
    uri = f"{room.url('n00001')}/redfish/v1/Systems/1/SerialConsole"
    async with aiohttp.ClientSession() as nobody:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await nobody.ws_connect(uri)
    assert refused.value.status == 401
    assert (await ask("n00001", "GET", "Systems/1/SerialConsole"))[0] == 426
