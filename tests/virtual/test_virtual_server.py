"""Simulated controllers over real sockets: what Redfish asks of them, and that they are the model and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator

import aiohttp
import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.errors import BadRequest
from strata.core.model import Model
from strata.core.state import Outcome
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.virtual.bmc.mischief import Mischief, Trick
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.agents import AgentDriver
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Faults, Timing
from strata.virtual.fleet.nodes import SimNodes

MODEL = Model.of(HARDWARE, PROVISIONING, PLATFORM)
AUTH = {"Authorization": SIMULATED_ACCOUNT.basic}
SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def server() -> AsyncIterator[BmcServer]:
    found = BmcServer(SimNodes(3, timing=Timing(scale=0)), clock=Clock())
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers=AUTH) as found:
        yield found


async def test_every_link_below_the_service_root_leads_to_a_resource_that_names_itself(server, http):
    base = server.url("n00001")
    waiting, seen = ["/redfish/v1/"], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        async with http.get(base + path) as reply:
            assert reply.status == 200, path
            assert reply.headers["OData-Version"] == "4.0"
            body = await reply.json()
        assert body["@odata.id"] == path
        assert body["@odata.type"].startswith("#")
        assert body["Name"]
        waiting += [link for link in _links(body) if "#" not in link]
    assert {SYSTEM, "/redfish/v1/Chassis/1/Power", "/redfish/v1/Managers/1", "/redfish/v1/SessionService"} <= seen


def _links(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["@odata.id"]] if "@odata.id" in value else []
        return own + [link for item in value.values() for link in _links(item)]
    return [link for item in value for link in _links(item)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/redfish/v1/Nowhere", None, 404, "ResourceMissingAtURI"),
        ("DELETE", SYSTEM, None, 405, "OperationNotAllowed"),
        ("GET", RESET, None, 405, "OperationNotAllowed"),
        ("POST", RESET, "{", 400, "MalformedJSON"),
        ("POST", RESET, "[]", 400, "MalformedJSON"),
        ("POST", RESET, "{}", 400, "ActionParameterMissing"),
        ("POST", RESET, '{"ResetType": "Explode"}', 400, "ActionParameterValueNotInList"),
        ("POST", RESET, '{"ResetType": ["On"]}', 400, "ActionParameterValueNotInList"),
        ("PATCH", SYSTEM, '{"PowerState": "On"}', 400, "PropertyUnknown"),
        ("POST", "/redfish/v1/SessionService/Sessions", '{"UserName": "root"}', 401, "ResourceAtUriUnauthorized"),
        ("DELETE", "/redfish/v1/SessionService/Sessions/9", None, 404, "ResourceMissingAtURI"),
    ],
)
async def test_a_bad_request_gets_its_status_and_a_redfish_error_and_changes_nothing(
    server, http, method, path, body, status, code
):
    async with http.request(method, server.url("n00001") + path, data=body) as reply:
        assert reply.status == status
        assert (await reply.json())["error"]["code"].endswith(code)
        assert status != 405 or reply.headers["Allow"]
    assert len(server.nodes.effects) == 0


async def test_only_the_root_and_the_login_are_open_to_all(server):
    async with aiohttp.ClientSession() as nobody:
        for path, status in (("/redfish", 200), ("/redfish/v1", 200), (SYSTEM, 401), ("/redfish/v1/Systems", 401)):
            async with nobody.get(server.url("n00001") + path) as reply:
                assert reply.status == status
        async with nobody.post(server.url("n00001") + RESET, json={"ResetType": "On"}) as reply:
            assert reply.status == 401
        async with nobody.get(f"{server.address}/bmc/ghost/redfish/v1") as reply:
            assert reply.status == 404
    assert len(server.nodes.effects) == 0


async def test_an_etag_spares_the_body_until_the_power_changes(server, http):
    url = server.url("n00001")
    async with http.get(url + SYSTEM) as reply:
        tag = {"If-None-Match": reply.headers["ETag"]}
    async with http.get(url + SYSTEM, headers=tag) as reply:
        assert reply.status == 304
    async with http.post(url + RESET, json={"ResetType": "On"}) as reply:
        assert reply.status == 204
    async with http.get(url + SYSTEM, headers=tag) as reply:
        assert (await reply.json())["PowerState"] == "On"


async def test_sessions_are_limited_can_be_ended_and_run_out(server, http):
    url = server.url("n00001") + "/redfish/v1/SessionService/Sessions"
    login = {"UserName": "root", "Password": "simulated"}
    tokens = []
    for _ in range(8):
        async with http.post(url, json=login) as reply:
            assert reply.status == 201
            tokens.append((reply.headers["X-Auth-Token"], reply.headers["Location"]))
    async with http.post(url, json=login) as reply:
        assert reply.status == 503
        assert "SessionLimitExceeded" in await reply.text()
    async with http.delete(server.url("n00001") + tokens[0][1]) as reply:
        assert reply.status == 204
    async with http.post(url, json=login) as reply:
        assert reply.status == 201
    async with aiohttp.ClientSession(headers={"X-Auth-Token": tokens[1][0]}) as holder:
        for later, status in ((299, 200), (299, 200), (301, 401)):
            server.clock.now += later
            async with holder.get(server.url("n00001") + SYSTEM) as reply:
                assert reply.status == status


async def test_too_many_wrong_passwords_lock_the_account(server, http):
    url = server.url("n00001") + "/redfish/v1/SessionService/Sessions"
    for _ in range(5):
        async with http.post(url, json={"UserName": "root", "Password": "guess"}) as reply:
            assert reply.status == 401
    async with http.post(url, json={"UserName": "root", "Password": "simulated"}) as reply:
        assert reply.status == 401


@pytest.mark.parametrize("fence", ["", "x.1", "1", "1.-2", "9" * 60 + ".1"])
async def test_a_fence_that_makes_no_sense_is_refused(server, http, fence):
    headers = {"X-Strata-Fence": fence}
    async with http.post(server.url("n00001") + RESET, json={"ResetType": "On"}, headers=headers) as reply:
        assert reply.status == 400
    assert len(server.nodes.effects) == 0


async def test_head_has_no_body_and_requests_in_one_packet_are_answered_in_order(server):
    port = int(server.address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    server.prank("n00001").latency = 0.01
    head = "HEAD /bmc/n00001/redfish/v1 HTTP/1.1\r\nHost: x\r\n\r\n"
    writer.write((head + "GET /bmc/n00002/redfish/v1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").encode())
    received = (await reader.read()).decode()
    assert received.count("HTTP/1.1 200 OK") == 2
    assert "BMC of n00001" not in received
    assert "BMC of n00002" in received
    writer.close()
    await writer.wait_closed()


async def test_what_is_not_http_gets_a_400_and_is_closed(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    writer.write(b"\x16\x03\x01\x00\x00hello\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("by", ["path", "port", "address"])
async def test_controllers_can_be_told_apart_by_path_port_or_address(by, http):
    server = BmcServer(SimNodes(3, timing=Timing(scale=0)), by=by)
    await server.start()
    async with http.post(server.url("n00002") + RESET, json={"ResetType": "On"}) as reply:
        assert reply.status == 204
    states = []
    for name in server.nodes.names:
        async with http.get(server.url(name) + SYSTEM) as reply:
            states.append((await reply.json())["PowerState"])
    assert states == ["Off", "On", "Off"]
    if by != "port":
        with pytest.raises(BadRequest):
            server.refuse("n00001")
    await server.stop()


async def test_mischief_is_drawn_from_the_seed(http):
    seen = []
    for seed in (1, 1, 2):
        server = BmcServer(SimNodes(4, seed=seed), mischief=Mischief(busy=0.3, html=0.3, latency=0.0001))
        await server.start()
        kinds = []
        for name in server.nodes.names * 10:
            async with http.get(server.url(name) + SYSTEM) as reply:
                kinds.append((reply.status, reply.content_type))
        seen.append(kinds)
        await server.stop()
    assert seen[0] == seen[1] != seen[2]
    assert set(seen[0]) == {(200, "application/json"), (200, "text/html"), (503, "application/json")}
    with pytest.raises(BadRequest):
        Mischief(busy=0.6, html=0.6)


async def test_a_trick_is_played_as_often_as_planned_and_on_that_method_only(server, http):
    server.prank("n00001").plan(Trick.BUSY, times=2, method="POST")
    url = server.url("n00001")
    async with http.get(url + SYSTEM) as reply:
        assert reply.status == 200
    for status in (503, 503, 204):
        async with http.post(url + RESET, json={"ResetType": "On"}) as reply:
            assert reply.status == status
    assert server.bmc("n00001").resets == ["On"]


# -- one model, two faces

HOSTILE = Faults(
    request_lost=0.15, reply_lost=0.15, refused=0.1, ignored=0.1, boot_hangs=0.2, power_lies=0.2, power_null=0.2
)


@pytest.mark.parametrize("seed", range(3))
async def test_in_process_and_over_sockets_the_same_seed_gives_the_same_world(seed):
    clock = Clock()
    inside, outside = (SimNodes(12, seed=seed, faults=HOSTILE) for _ in range(2))
    server = BmcServer(outside, clock=clock)
    await server.start()
    near = sim_drivers(inside, clock)
    client = RedfishClient(Credentials("root", "simulated"), settings=RedfishSettings(), clock=clock)
    far = {
        "bmc": BmcDriver(Bmcs(client)),
        "node": AgentDriver("node", server.address, SIMULATED_ACCOUNT, clock=clock),
        "workload": AgentDriver("workload", server.address, SIMULATED_ACCOUNT, clock=clock),
        "health": AgentDriver("health", server.address, SIMULATED_ACCOUNT, clock=clock),
    }
    steps = ("power-on", "boot", "enrol", "load-image", "start-personality", "configure", "join-workload", "power-off")
    for generation, step in enumerate(steps * 2):
        mutation = MODEL.mutations[step]
        told = Batch(
            names=inside.names,
            uids=inside.all,
            bmcs=[server.url(name) for name in inside.names],
            goals={"image": Column.same("v1", 12), "config": Column.same("c1", 12)},
            epochs=np.ones(12, dtype=np.int64),
            generation=generation,
        )
        here = await near[mutation.driver].act(mutation, told)
        there = await far[mutation.driver].act(mutation, told)
        assert here.codes.tolist() == there.codes.tolist(), step
        clock.now += 120
        for name in near:
            a = await near[name].observe(list(MODEL.variables), told)
            b = await far[name].observe(list(MODEL.variables), told)
            assert {k: v.values() for k, v in a.items()} == {k: v.values() for k, v in b.items()}, step
    a, b = [list(await faces["workload"].permits("no-running-job", told)) for faces in (near, far)]
    assert a == b
    assert sorted(inside.effects.rows.tolist()) == sorted(outside.effects.rows.tolist())
    assert len({Outcome(code) for code in here.codes.tolist()}) > 1
    for driver in far.values():
        await driver.close()
    await client.close()
    await server.stop()


@pytest.mark.server
@pytest.mark.slow
async def test_the_command_says_where_it_listens_and_stops_on_sigterm():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strata.virtual.bmc.server", "--nodes", "8", "--port", "0", "--seed", "3"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        async with RedfishClient(Credentials("root", "simulated")) as client:
            answer = await client.get(f"{said['address']}/bmc/n00008", SYSTEM)
        assert answer.body["PowerState"] == "Off"
    finally:
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
