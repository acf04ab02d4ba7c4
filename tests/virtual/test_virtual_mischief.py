"""Every way in which a simulated controller misbehaves, on a real socket."""

from __future__ import annotations

import asyncio
import socket
import ssl

import aiohttp
import pytest

from strata.core.errors import BadRequest
from strata.virtual.bmc.certificate import self_signed
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.bmc.ssdp import SERVICE
from strata.virtual.fleet.nodes import SimNodes

RESET = "Systems/1/Actions/ComputerSystem.Reset"
N = "n00001"
SESSIONS = "SessionService/Sessions"
LOGIN = {"UserName": "root", "Password": "simulated"}


@pytest.mark.parametrize(
    ("trick", "method", "path", "body", "status"),
    [
        (Trick.BUSY, "GET", "Systems/1", None, 503),
        (Trick.EXPIRED, "GET", "Systems/1", None, 401),
        (Trick.REDIRECT, "GET", "Systems/1", None, 307),
        (Trick.REDIRECT_HOME, "GET", "Systems/1", None, 307),
        (Trick.PRECONDITION, "PATCH", "Systems/1", {"AssetTag": "x"}, 412),
        (Trick.PRECONDITION, "GET", "Systems/1", None, 200),
        (Trick.FULL, "POST", SESSIONS, LOGIN, 503),
        (Trick.FULL, "GET", "Systems/1", None, 200),
        (Trick.ACCEPTED, "POST", RESET, {"ResetType": "On"}, 202),
        (Trick.IGNORED, "POST", RESET, {"ResetType": "On"}, 204),
    ],
)
async def test_a_trick_answers_with_its_status(ask, room, trick, method, path, body, status):
    room.prank(N).always.add(trick)
    assert (await ask(N, method, path, body, allow_redirects=False))[0] == status
    taken = trick is Trick.ACCEPTED
    assert room.bmc(N).resets == ["On"] * taken
    assert len(room.nodes.effects) == taken


async def test_a_202_comes_without_a_location(room, user):
    room.prank(N).plan(Trick.ACCEPTED)
    async with user.post(f"{room.url(N)}/redfish/v1/{RESET}", json={"ResetType": "On"}) as reply:
        assert (reply.status, reply.headers.get("Location")) == (202, None)


@pytest.mark.parametrize(
    ("trick", "check"),
    [
        (Trick.POWER_NULL, lambda body: body["PowerState"] is None and body["Name"] == N),
        (Trick.POWER_LIE, lambda body: body["PowerState"] == "On"),
        (Trick.NO_ACTIONS, lambda body: "Actions" not in body),
        (Trick.NULL, lambda body: body["Name"] is None and body["@odata.id"]),
        (Trick.STRINGS, lambda body: body["ProcessorSummary"]["Count"] == "2"),
        (Trick.ABSURD, lambda body: body["ProcessorSummary"]["Count"] == -1e300),
        (Trick.HOSTILE, lambda body: "<script>" in body["Model"] and "\x1b" in body["Model"]),
    ],
)
async def test_a_trick_spoils_what_the_system_says(ask, room, trick, check):
    room.prank(N).always.add(trick)
    status, body = await ask(N, "GET", "Systems/1")
    assert status == 200
    assert check(body)


@pytest.mark.parametrize("trick", [Trick.CUT, Trick.DROP_BEFORE, Trick.DROP_AFTER])
async def test_a_connection_breaks_in_the_middle_of_a_post(ask, room, trick):
    room.prank(N).plan(trick)
    with pytest.raises(aiohttp.ClientError):
        await ask(N, "POST", RESET, {"ResetType": "On"})
    assert room.bmc(N).resets == ["On"] * (trick is not Trick.DROP_BEFORE)


async def test_a_body_without_end_goes_on_for_as_long_as_one_reads(room, user):
    room.prank(N).plan(Trick.ENDLESS)
    async with user.get(f"{room.url(N)}/redfish/v1/Systems/1") as reply:
        assert len(await reply.content.readexactly(3 << 20)) == 3 << 20
        reply.close()


async def test_a_reply_can_come_two_minutes_late(ask, room):
    room.prank(N).latency = 120
    with pytest.raises(TimeoutError):
        await ask(N, "GET", "Systems/1", timeout=aiohttp.ClientTimeout(total=0.05))


async def test_a_certificate_that_changes_is_seen_by_the_next_connection():
    room = BmcServer(SimNodes(1), tls=self_signed())
    await room.start()
    port = int(room.address.rpartition(":")[2])
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    shown = []
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anything)
        shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.write(b"GET /redfish HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        if len(shown) == 2:
            room.change_certificate()
            await reader.read()  # to the end: the connection is cut
        writer.close()
        await writer.wait_closed()
    assert shown[0] == shown[1] != shown[2]
    await room.stop()
    with pytest.raises(BadRequest):
        BmcServer(SimNodes(1)).change_certificate()


async def test_how_many_sessions_were_open_at_the_same_time_is_remembered(ask, room):
    for _ in range(3):
        _, session = await ask(N, "POST", SESSIONS, LOGIN)
        await ask(N, "DELETE", session["@odata.id"][12:])
    assert (room.bmc(N).sessions_most, room.bmc(N).sessions) == (1, {})


async def test_a_search_for_redfish_services_is_answered_by_every_controller_that_lives():
    room = BmcServer(SimNodes(3), ssdp=True, ssdp_port=0)
    room.nodes.bmc_dead[1] = True
    await room.start()
    answers: asyncio.Queue[str] = asyncio.Queue()

    class Searcher(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            answers.put_nowait(data.decode())

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Searcher, local_addr=("127.0.0.1", 0), family=socket.AF_INET)
    where = ("127.0.0.1", room.ssdp.port)
    search = (
        f'M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nMAN: "ssdp:discover"\r\nMX: 1\r\nST: {SERVICE}\r\n\r\n'
    )
    for other in (b"", b"\xff" * 4000, b"NOTIFY * HTTP/1.1\r\n\r\n", search.replace("redfish", "printer").encode()):
        transport.sendto(other, where)
    transport.sendto(search.encode(), where)
    found = [await asyncio.wait_for(answers.get(), 60) for _ in range(2)]
    assert [f"AL: {room.url(name)}/redfish/v1/" in text for name, text in zip(("n00001", "n00003"), found, strict=True)]
    assert all(text.startswith("HTTP/1.1 200 OK\r\n") and "USN: uuid:" in text for text in found)
    assert (room.ssdp.searches, answers.empty()) == (1, True)
    transport.close()
    await room.stop()
