"""A fleet of which one BMC in twenty answers badly, over real sockets and through the API: the healthy ones are acted
on, and each bad one has a line and an alert of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.api.app import create_app
from strata.core.model import Model
from strata.core.nodeset import expand
from strata.daemon.settings import Settings, SimulatedSettings
from strata.engine.settings import EngineSettings
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.connections import Reply
from strata.hardware.bmc.redfish.endpoint import Endpoint
from strata.hardware.events.hub import EventHub
from strata.hardware.events.poller import BAD, SILENT, PollSettings
from strata.hardware.layer import Reach, open_hardware
from strata.hardware.model import LAYER as HARDWARE
from strata.hardware.settings import HardwareSettings
from strata.store.memory import MemoryStore
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet, api_services

ONE_IN = 20
USABLE = (Trick.BAD_BYTES, Trick.STRINGS)
"""What can be read all the same: whoever does this is acted on like the others."""
LIARS = (Trick.POWER_LIE, Trick.IGNORED)
"""What nobody can see by looking: it shows when an order has no effect."""
KINDS = (
    *USABLE, *LIARS, Trick.WRONG_TYPES, Trick.NULL, Trick.POWER_NULL, Trick.SILENT, Trick.DROP_BEFORE, Trick.HTML,
    Trick.ENDLESS, Trick.MEMBERS, Trick.HEADERS, Trick.NOT_THERE,
)  # fmt: skip
COUNT = ONE_IN * len(KINDS)
FAST_LOOKS = PollSettings(fast=0.5, slow=30.0, yields=0.5, look=30.0, others=0.1)


def be_patient(client: RedfishClient, server: BmcServer) -> None:
    """Give healthy BMCs the time that a busy machine needs. They, the bad ones and the service share one event loop
    here: no one limit is right for all. Who is bad is looked at with each request."""
    send = client._wire.send

    async def patiently(bmc: Endpoint, *args: Any, timeout: float = 0.0, **more: Any) -> Reply:
        healthy = not server.prank(bmc.path.rpartition("/")[2]).always
        return await send(bmc, *args, timeout=120.0 if healthy else timeout, **more)

    client._wire.send = patiently  # type: ignore[method-assign]


class Fleet:
    """The fleet, and the service that looks after it."""

    def __init__(
        self, server: BmcServer, service: OpenFleet, reach: Reach, hub: EventHub, client: httpx.AsyncClient
    ) -> None:
        self.server = server
        self.service = service
        self.bmcs = reach.bmcs
        self.hub = hub
        self.client = client
        self.names = list(server.nodes.names)
        self.bad = dict(zip(self.names[::ONE_IN], KINDS, strict=False))
        self.healthy = [name for name in self.names if name not in self.bad]

    def misbehave(self) -> None:
        for name, trick in self.bad.items():
            self.server.prank(name).always = {trick}

    def power(self, name: str) -> str:
        """In truth."""
        index = self.server.nodes.index[name]
        nodes = self.server.nodes
        return nodes.truth("power", nodes.all[index : index + 1], self.server.clock()).values()[0]

    def alerts(self, name: str) -> dict[str, str]:
        """Key → message of what is open."""
        return {alert.key: alert.message for alert in self.hub.alerts.open_on(name)}

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = await self.client.post(path, json=body, timeout=120)
        assert answer.is_success, answer.text
        return answer.json()


@contextlib.asynccontextmanager
async def the_fleet(directory: Path, count: int = COUNT) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as parts:
        names = [node.name for node in simulated_nodes(count)]
        server = BmcServer(SimNodes(count, names=names, timing=Timing(scale=0)))
        await server.start()
        parts.push_async_callback(server.stop)
        settings = Settings(
            state_dir=directory,
            controller_id="test",
            leadership=LeadershipSettings(shards=2),
            hardware=HardwareSettings(consoles=False),
            simulated=SimulatedSettings(address=server.address),
        )
        store = MemoryStore()
        controller = Controller(
            store,
            Model.of(HARDWARE),
            {},
            name="test",
            leadership=settings.leadership,
            engine=EngineSettings(first_poll=0.05, blind_look=0.5),
        )
        service = OpenFleet(controller, settings)
        parts.push_async_callback(service.stop)
        service.put(Seal.load(settings.secrets_key, make=True))
        services = api_services(
            fleet=service,
            authenticator=await service.keep(Authenticator(store, service.ledger)),
            authority=Authority.open(settings.ca_dir),
        )
        reach = Reach(settings.hardware, service.of(Seal), store, service.ledger)
        reach.give(f"{server.address}/", Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password))
        quick = RedfishSettings(timeout=4.0, quick=4.0, dead_for=0.5, dead_most=1.0)
        redfish = RedfishClient(reach._login, settings=quick, tls=reach.tls)
        be_patient(redfish, server)
        reach.bmcs = Bmcs(redfish)
        reach.bmcs.shows_within = 3.0
        for driver in sim_drivers(server.nodes, server.clock).values():
            service.drive(driver)
        await open_hardware(service, reach)
        await service.start()
        hub = service.of(EventHub)
        assert hub.poller is not None
        hub.poller.settings = FAST_LOOKS
        transport = httpx.ASGITransport(app=create_app(services, "admin"), raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://strata")
        await parts.enter_async_context(client)
        fleet = Fleet(server, service, reach, hub, client)
        fleet.misbehave()
        await service.edits.create_nodes(simulated_nodes(count, bmc_base=server.address), "test")
        await service.settled(await store.revision())
        await hub.refresh()
        yield fleet


async def until(true: Callable[[], Any], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.05)


def lines(outcome: dict[str, Any]) -> dict[str, str]:
    """Node → why it failed."""
    return {name: one["reason"] for one in outcome["failed"] for name in expand(one["nodes"])}


@pytest.mark.slow
async def test_commands_act_on_every_healthy_bmc_and_each_bad_one_has_its_own_line_and_alert(tmp_path: Path) -> None:
    async with the_fleet(tmp_path) as fleet:
        await _power_on(fleet)
        await _commands(fleet)
        await _sensors(fleet)
        await _discovery(fleet)
        await _alerts(fleet)
        await _emergency(fleet)


def _told(fleet: Fleet, outcome: dict[str, Any]) -> dict[str, str]:
    """Every node has its line, every healthy one is done, and nobody is told of our own mistakes."""
    failed, done = lines(outcome), set(expand(outcome["done"]))
    assert set(failed) | done == set(fleet.names) and not set(failed) & done
    assert set(fleet.healthy) <= done, {name: failed[name] for name in fleet.healthy if name in failed}
    assert {name for name, trick in fleet.bad.items() if trick in USABLE} <= done
    assert all(failed.values()) and "internal error" not in str(failed), failed
    return failed


async def _commands(fleet: Fleet) -> None:
    failed = _told(fleet, await fleet.post("/v1/bmc/identify", select="*", on=True))
    assert [name for name in fleet.healthy if not fleet.server.bmc(name).light] == []
    helpless = {Trick.SILENT, Trick.DROP_BEFORE, Trick.HTML, Trick.ENDLESS, Trick.MEMBERS, Trick.HEADERS}
    assert {name for name, trick in fleet.bad.items() if trick in helpless} <= set(failed)
    failed = _told(fleet, await fleet.post("/v1/bmc/power", select="*", action="cycle", force=True))
    assert [name for name in fleet.healthy if not fleet.server.bmc(name).resets] == []


async def _power_on(fleet: Fleet) -> None:
    good = [*fleet.healthy, *(name for name, trick in fleet.bad.items() if trick in USABLE)]
    liar = next(name for name, trick in fleet.bad.items() if trick is Trick.POWER_LIE)
    await fleet.post("/v1/bmc/power", select="*", action="off")
    await until(lambda: fleet.server.bmc(liar).resets)  # it is off, and says that it is on
    await fleet.post("/v1/bmc/power", select="*", action="on")
    await until(lambda: all(fleet.power(name) == "on" for name in good))


async def _sensors(fleet: Fleet) -> None:
    answer = await fleet.client.get("/v1/bmc/sensors", params={"select": "*"}, timeout=120)
    assert answer.status_code == 200, answer.text
    told = {item["node"]: item for item in answer.json()["items"]}
    assert set(told) == set(fleet.names)
    assert [name for name in fleet.healthy if not told[name]["readings"] or told[name]["trouble"]] == []
    assert [name for name in fleet.bad if not told[name]["readings"] and not told[name]["trouble"]] == []
    assert "internal error" not in answer.text


async def _discovery(fleet: Fleet) -> None:
    begun = await fleet.post("/v1/hardware/discover", known=True)
    job = await fleet.service.operations.wait(begun["id"])
    assert job.state == "done", job
    answer = await fleet.client.get("/v1/hardware/bmcs", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    found = {item["address"].rpartition("/")[2]: item for item in answer.json()["items"]}
    assert set(fleet.healthy) <= set(found)
    assert [name for name in fleet.healthy if found[name]["machines"] != 1 or found[name]["trouble"]] == []
    usable = [name for name, trick in fleet.bad.items() if trick in USABLE]
    assert [name for name in usable if found[name]["machines"] != 1] == []
    failed = {address.rpartition("/")[2]: why for address, why in ((one.node, one.detail) for one in job.errors)}
    lost = {name for name in fleet.bad if name not in found}
    assert lost <= set(failed) and "internal error" not in str(failed)
    assert [name for name in fleet.bad if name in found and name not in usable and not found[name]["trouble"]] == [
        name for name, trick in fleet.bad.items() if trick in (*LIARS, Trick.POWER_NULL, Trick.NULL, Trick.WRONG_TYPES)
    ]


async def _alerts(fleet: Fleet) -> None:
    def alerted() -> list[str]:
        return [name for name in fleet.bad if not {BAD, SILENT} & set(fleet.alerts(name))]

    with contextlib.suppress(AssertionError):
        await until(lambda: not alerted())
    assert {name: fleet.bad[name] for name in alerted()} == {}
    silent = [name for name, trick in fleet.bad.items() if trick is Trick.SILENT]
    assert all(SILENT in fleet.alerts(name) for name in silent)
    assert {name: fleet.alerts(name) for name in fleet.healthy if fleet.alerts(name)} == {}
    listed = (await fleet.client.get("/v1/alerts", params={"limit": 1000})).json()["items"]
    assert {item["node"] for item in listed if item["key"] in (BAD, SILENT)} == set(fleet.bad)


async def _emergency(fleet: Fleet) -> None:
    report = await fleet.post("/v1/emergency-off", select="*", reason="water", confirm=f"power off {COUNT} nodes")
    _told(fleet, report["outcome"])
    assert [name for name in fleet.healthy if fleet.power(name) != "off"] == []


class Broken:
    """A BMC with which we fail ourselves, whatever is asked."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def breaks(*_: object, **__: object) -> None:
            raise TypeError(f"{name} of what is no mapping")

        return breaks


@pytest.mark.slow
async def test_whatever_is_raised_in_the_work_for_one_node_is_the_result_of_that_node(tmp_path: Path) -> None:
    async with the_fleet(tmp_path, 4) as fleet:
        broken, *others = fleet.names
        fleet.server.prank(broken).always.clear()
        address = fleet.server.url(broken)
        fleet.bmcs._opened[address] = Broken(address)  # type: ignore[assignment]
        told = f"{address}: internal error while talking to the BMC: TypeError"
        outcome = await fleet.post("/v1/bmc/identify", select="*", on=True)
        assert expand(outcome["done"]) == others and told in lines(outcome)[broken]
        read = (await fleet.client.get("/v1/bmc/sensors", params={"select": "*"})).json()["items"]
        assert [bool(item["readings"]) for item in read] == [False, True, True, True] and told in read[0]["trouble"]
        for path in ("log", "limits", "bios", "settings"):
            answer = await fleet.client.get(f"/v1/nodes/{broken}/bmc/{path}")
            assert answer.status_code == 502 and "internal error" in answer.json()["detail"]
        await fleet.post("/v1/bmc/power", select="*", action="on")
        await until(lambda: all(fleet.power(name) == "on" for name in others))
        report = await fleet.post("/v1/emergency-off", select="*", reason="water", confirm="power off 4 nodes")
        assert expand(report["outcome"]["done"]) == others and told in lines(report["outcome"])[broken]
        await until(lambda: BAD in fleet.alerts(broken))
        assert {name: fleet.alerts(name) for name in others} == {name: {} for name in others}


@pytest.mark.slow
async def test_every_bmc_that_dies_has_an_alert_though_nobody_polls_it_for_a_long_while(tmp_path: Path) -> None:
    async with the_fleet(tmp_path, 20) as fleet:
        assert fleet.hub.poller is not None
        fleet.hub.poller.settings = PollSettings(fast=3600.0, slow=3600.0)
        for name in fleet.names:
            fleet.server.prank(name).always = set()
        facts = fleet.service.controller.engine.table.columns["power"]
        await until(lambda: (facts.fact[:20] != 0).all())
        dead = fleet.names[::2]
        for name in dead:
            fleet.server.prank(name).always = {Trick.SILENT}
        fleet.service.controller.look_soon(fleet.names)

        def told() -> bool:
            fleet.service.silences.reckon()
            return all(SILENT in fleet.alerts(name) for name in dead)

        await until(told)
        assert not any(fleet.alerts(name) for name in fleet.names[1::2])
        for name in dead:
            fleet.server.prank(name).always = set()

        def over() -> bool:
            fleet.service.silences.reckon()
            return not any(fleet.alerts(name) for name in fleet.names)

        await until(over)
