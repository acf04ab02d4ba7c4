"""A whole controller boots a node that is off, by each method: what the node's controller is told, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.errors import DeviceError, NotOffered
from strata.engine.progress import Phase
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.bmc.protocol import Boot
from strata.provisioning.agents import driver as node_aim
from strata.provisioning.agents.driver import BootWay
from strata.provisioning.identity.records import BootRecord
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.agent_site import AgentSite, FakeIdentity, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

NAME = "n00001"
URI = "http://10.0.0.1/boot/efi/ipxe.efi"
MEDIUM = "https://controller.example/medium.iso"


class Bmc:
    """Writes down what it was told, and whether the node had power then."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.power: Callable[[], str] = lambda: "?"
        self.offers = ("pxe", "http", "media")
        self.refuses = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def insert_media(self, image: str) -> None:
        self.told.append(("insert", image, self.power()))

    async def set_boot(self, boot: Boot) -> None:
        await self.answers.wait()
        if boot.target not in self.offers:
            raise NotOffered(f"it cannot boot from {boot.target}", node=NAME, request="boot")
        self.told.append((boot.target, boot.uri, self.power()))

    async def set_power(self, action: str, **_: Any) -> None:
        if self.refuses:
            self.refuses -= 1
            raise DeviceError("not now", node=NAME, request="Reset")
        self.told.append(action)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 (what the engine believes has no event)
            await asyncio.sleep(0.02)


class Site:
    """A node that is off and never booted, and its controller."""

    def __init__(self, site: AgentSite, identity: FakeIdentity, bmc: Bmc) -> None:
        self.site = site
        self.identity = identity
        self.bmc = bmc
        self.node = site.service.registry.select(NAME)

    async def want(self, **values: str) -> None:
        await self.site.service.edits.set_desires(self.node, values, (), "test")

    def doing(self) -> str | None:
        doing = self.site.service.view.node(int(self.node[0])).doing
        return doing.mutation if doing is not None else None

    async def events(self) -> list[str]:
        page = await self.site.service.history(LOCAL_ADMIN, NAME, None, None, 100, "")
        return [item.new for item in page.items if item.variable == "event"]

    async def says(self, text: str) -> None:
        """Until the history tells this of the node: it is written by way of the store."""
        async with asyncio.timeout(60):
            while not any(text in event for event in await self.events()):  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0.02)

    async def waits_for_the_agent(self) -> None:
        """The boot was begun, and what is told is told."""
        work = self.site.service.controller.engine.progress
        await until(lambda: self.doing() == "boot" and int(work.phase[self.node[0]]) == Phase.SETTLING)

    async def arrives(self) -> None:
        self.identity.records[NAME] = self.identity.default
        async with http_over(self.site.socket) as http, running(FakeAgent(http, NAME)):
            await until(lambda: self.site.service.view.state(int(self.node[0])) == "ready")


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Site]:
    bmc, identity = Bmc(), FakeIdentity()
    identity.records[NAME] = BootRecord()
    sim = SimNodes(1, timing=Timing(scale=0))
    bmc.power = lambda: sim.truth("power", np.array([0]), time.monotonic()).values()[0]
    async with agent_site(tmp_path / "s", nodes=1, identity=identity, sim=sim, bmc=lambda _: bmc) as site:
        yield Site(site, identity, bmc)


WAYS = {
    "ipxe": (BootWay(boot=Boot(target="pxe")), [("pxe", "", "off")]),
    "http": (BootWay(boot=Boot(target="http", uri=URI)), [("http", URI, "off")]),
    # It has to be made, which takes long: the node is switched on, and started anew when there is one.
    "media": (
        BootWay(boot=Boot(target="media"), media=MEDIUM),
        [("insert", "", "on"), ("insert", MEDIUM, "on"), ("media", "", "on"), "cycle"],
    ),
}


@pytest.mark.parametrize("method", WAYS)
async def test_a_node_that_is_off_boots_by_the_method_that_is_wanted(made: Site, method: str) -> None:
    made.site.way, told = WAYS[method]
    await made.want(power="on", os="up")
    await made.waits_for_the_agent()
    assert made.bmc.told == told
    await made.arrives()
    assert made.bmc.told == told
    assert await made.events() == []


async def test_a_node_of_which_only_power_is_wanted_boots_what_it_has(made: Site) -> None:
    await made.want(power="on")
    await until(lambda: made.site.service.view.state(int(made.node[0])) == "ready")
    assert made.bmc.told == []


async def test_a_controller_that_cannot_be_told_keeps_nobody_from_the_network(made: Site) -> None:
    """Most machines find it by themselves; who does not is started anew after a while."""
    made.bmc.offers = ()
    await made.want(power="on", os="up")
    await made.waits_for_the_agent()
    assert made.bmc.told == []
    await made.arrives()


async def test_a_controller_that_knows_no_http_boot_is_named_as_the_reason(made: Site) -> None:
    made.site.way = WAYS["http"][0]
    made.bmc.offers = ("pxe",)
    await made.want(power="on", os="up")
    await made.says("cannot boot from http")
    assert made.bmc.told == [], "it is not booted by another method"


async def test_a_controller_that_takes_long_to_be_told_does_not_keep_the_power_away(
    made: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_aim, "AT_MOST", 0.1)
    made.site.way = WAYS["http"][0]
    made.bmc.answers.clear()
    await made.want(power="on", os="up")
    await until(lambda: made.doing() == "boot")
    assert made.bmc.power() == "on"
    made.bmc.answers.set()
    await made.waits_for_the_agent()
    assert made.bmc.told == [("http", URI, "on"), "cycle"], "what it booted meanwhile is not what is wanted"


async def test_a_node_that_runs_what_is_not_wanted_is_not_on_its_way_if_it_cannot_be_started_anew(
    made: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller was told, after the power; and then it did not switch it."""
    monkeypatch.setattr(node_aim, "AT_MOST", 0.1)
    made.site.way = WAYS["http"][0]
    made.bmc.answers.clear()
    made.bmc.refuses = 1
    await made.want(power="on", os="up")
    await until(lambda: made.doing() == "boot")
    made.bmc.answers.set()
    await until(lambda: "cycle" in made.bmc.told)
    await made.says("not now")


async def test_a_medium_that_the_controller_does_not_take_is_no_boot_under_way(made: Site) -> None:
    """Its token was made: without a start, nobody is on the way with it."""
    way = WAYS["media"][0]

    async def begin(name: str) -> BootWay:
        made.site.asked[name] = time.time()
        return way

    made.site.way = way
    made.site.driver._questions = msgspec.structs.replace(made.site.driver._questions, way=begin)
    made.bmc.offers = ()
    await made.want(power="on", os="up")
    await made.says("boot failed")
    made.bmc.offers = ("media",)
    await until(lambda: "cycle" in made.bmc.told)
