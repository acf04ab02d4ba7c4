"""The agent gateway and its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.errors import BadRequest, DeviceError
from strata.core.state import Outcome
from strata.hardware.model import LAYER as HARDWARE
from strata.provisioning.model import LAYER as PROVISIONING
from strata.virtual.bmc.http import HttpProtocol, Manner, Reply
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.agents import ActRequest, AgentDriver, Gateway, ObserveRequest, WireColumn
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish.bmc import Account

BOOT, ENROL, LOAD = PROVISIONING.mutations[:3]


@pytest.fixture
async def server() -> AsyncIterator[BmcServer]:
    found = BmcServer(SimNodes(3, timing=Timing(scale=0)))
    found.nodes.put(found.nodes.all, now=0, power="on")
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def driver(server: BmcServer) -> AsyncIterator[AgentDriver]:
    found = AgentDriver("node", server.address, SIMULATED_ACCOUNT)
    yield found
    await found.close()


def batch(*names: str, generation: int = 1, **more: object) -> Batch:
    return Batch(names=names, uids=np.arange(len(names)), generation=generation, **more)  # type: ignore[arg-type]


async def test_agents_act_and_are_seen_in_batches(server, driver):
    told = batch("n00001", "n00003")
    assert (await driver.act(BOOT, told)).codes.tolist() == [Outcome.DONE] * 2
    seen = await driver.observe(["os", "identity", "power"], batch(*server.nodes.names))
    assert {name: column.values() for name, column in seen.items()} == {
        "os": ["up", "down", "up"],
        "identity": ["none"] * 3,
    }


async def test_goals_travel(server, driver):
    server.nodes.put(server.nodes.all, now=0, os="up", identity="issued")
    goals = {"image": Column.of(["a", "b", "a"])}
    await driver.act(LOAD, batch(*server.nodes.names, goals=goals))
    assert (await driver.observe(["image"], batch(*server.nodes.names)))["image"].values() == ["a", "b", "a"]


async def test_fences_travel_and_a_stranger_fails(server, driver):
    await driver.act(BOOT, batch("n00001", generation=5))
    outcomes = await driver.act(ENROL, batch("n00001", "ghost", generation=5))
    assert outcomes.codes.tolist() == [Outcome.FENCED, Outcome.FAILED]
    assert set(outcomes.reasons) == {0, 1}


async def test_nothing_is_sent_after_the_lead_ran_out(server, driver):
    outcomes = await driver.act(BOOT, batch("n00001", valid_until=0.0))
    assert outcomes.codes.tolist() == [Outcome.FENCED]
    assert server.requests == 0


async def test_a_wrong_password_fails_and_does_nothing(server):
    driver = AgentDriver("node", server.address, Account("root", "guess"))
    assert (await driver.act(BOOT, batch("n00001"))).codes.tolist() == [Outcome.FAILED]
    with pytest.raises(DeviceError, match="401"):
        await driver.observe(["os"], batch("n00001"))
    assert len(server.nodes.effects) == 0
    await driver.close()


async def test_power_is_not_the_agents_to_switch(server, driver):
    outcomes = await driver.act(HARDWARE.mutations[0], batch("n00001"))
    assert outcomes.codes.tolist() == [Outcome.FAILED]
    assert "BMC" in outcomes.reasons[0]


async def test_only_the_workload_driver_answers_guards(server, driver):
    server.nodes.jobs.run(np.array([1]), until=1e9)
    workload = AgentDriver("workload", server.address, SIMULATED_ACCOUNT)
    answers = await workload.permits("no-running-job", batch("n00001", "n00002"))
    assert answers == ["", "a job runs on n00002"]
    assert all(await driver.permits("no-running-job", batch("n00001")))
    with pytest.raises(DeviceError):
        await workload.permits("full-moon", batch("n00001"))
    await workload.close()
    with pytest.raises(BadRequest):
        AgentDriver("bmc", server.address, SIMULATED_ACCOUNT)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(204, manner=Manner.CLOSED), Outcome.UNKNOWN),
        (Reply(204, manner=Manner.NEVER), Outcome.UNKNOWN),
        (Reply(200, b"<html>"), Outcome.UNKNOWN),
        (Reply(200, msgspec.msgpack.encode({"codes": b"\0\0\0", "reasons": {}})), Outcome.UNKNOWN),
        (Reply(200, msgspec.msgpack.encode({"codes": b"\x09", "reasons": {}})), Outcome.UNKNOWN),
        (Reply(500), Outcome.FAILED),
    ],
)
async def test_a_gateway_that_answers_badly_leaves_the_outcome_unknown(reply, outcome):
    connections: set[HttpProtocol] = set()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpProtocol(lambda _: reply, connections), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    patience = 0.1 if reply.manner is Manner.NEVER else 60.0
    driver = AgentDriver("node", f"http://127.0.0.1:{port}", SIMULATED_ACCOUNT, timeout=patience)
    assert (await driver.act(BOOT, batch("n1"))).codes.tolist() == [outcome]
    await driver.close()
    listener.close()
    async with asyncio.timeout(60):
        while connections:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    await listener.wait_closed()


async def test_no_gateway_means_that_nothing_happened(server):
    address = server.address
    await server.stop()
    driver = AgentDriver("node", address, SIMULATED_ACCOUNT)
    assert (await driver.act(BOOT, batch("n1"))).codes.tolist() == [Outcome.FAILED]
    await driver.close()


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("observe", b"\xc1"),
        ("observe", msgspec.msgpack.encode(ObserveRequest(("mood",), ("n00001",)))),
        ("observe", msgspec.msgpack.encode(ObserveRequest(("os",), ("n00001", "n00001")))),
        ("act", msgspec.msgpack.encode(ActRequest("boot", ("n00001",), b"", 1))),
        ("act", msgspec.msgpack.encode(ActRequest("load-image", ("n00001",), b"\0" * 8, 1))),
        (
            "act",
            msgspec.msgpack.encode(
                ActRequest("load-image", ("n00001",), b"\0" * 8, 1, {"image": WireColumn(("a",), b"\2\0\0\0")})
            ),
        ),
        ("permits", msgspec.msgpack.encode({"guard": 3})),
    ],
)
async def test_a_bad_request_to_the_gateway_is_refused_and_changes_nothing(route, body):
    nodes = SimNodes(1)
    with pytest.raises(BadRequest):
        Gateway(nodes).answer(route, body, 0.0)
    assert len(nodes.effects) == 0


async def test_the_gateway_knows_its_routes_and_methods(server):
    headers = {"Authorization": SIMULATED_ACCOUNT.basic}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(f"{server.address}/agents/observe") as reply:
            assert reply.status == 405
        async with http.post(f"{server.address}/agents/dance") as reply:
            assert reply.status == 404
        async with http.post(f"{server.address}/agents/observe", data=b"\xc1") as reply:
            assert reply.status == 400


async def test_the_nodes_own_book_tells_what_they_were_told_and_what_came_twice(server, driver):
    for generation, names in ((1, ("n00001", "n00003")), (2, ("n00003",))):
        await driver.act(BOOT, batch(*names, generation=generation))
    server.nodes.panic(np.array([2]), now=0.0)
    await driver.act(BOOT, batch("n00003", generation=3))
    await driver.act(BOOT, batch("n00003", generation=3))
    url = f"{server.address}/fleet/effects"
    async with aiohttp.ClientSession() as http:
        async with http.get(url) as reply:
            assert reply.status == 401
        headers = {"Authorization": SIMULATED_ACCOUNT.basic}
        async with http.post(url, headers=headers) as reply:
            assert reply.status == 405
        async with http.get(url, headers=headers) as reply:
            book = await reply.json()
    assert book == {
        "counts": {"boot": 3},
        "twice": [],
        "idle": 0,
        "repeated": {"n00003": ["boot", "boot"]},
        "fenced": 1,
        "jobs_lost": 0,
    }
