"""What BMCs say of power by themselves is a fact, without a look; where it is not clear or not new, one looks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.events.hub import FRESH, EventHub
from strata.hardware.events.site import bmc_addresses
from strata.hardware.layer import tells
from strata.hardware.model import LAYER as HARDWARE
from strata.store.memory import MemoryStore
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

NAMES = [node.name for node in simulated_nodes(2)]


class Ground:
    """A controller over simulated BMCs, which counts how often nodes are looked at."""

    def __init__(self, server: BmcServer, fleet: OpenFleet, hub: EventHub, driver: BmcDriver) -> None:
        self.server = server
        self.fleet = fleet
        self.hub = hub
        self.bmcs = driver._bmcs
        self.driver = driver
        self.looks: list[str] = []
        self._observe = driver.observe
        driver.observe = self._counted  # type: ignore[method-assign]

    async def _counted(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self.looks += batch.names
        return await self._observe(variables, batch)

    def fact(self, name: str) -> tuple[str, str]:
        found = self.fleet.view.node(self.fleet.registry.index_of(name)).facts["power"]
        return found.value, found.source

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await self.fleet.controller.stepped()

    async def ready(self) -> None:
        """Everything was looked at, and nobody is looked at any more for a while."""
        await self.until(lambda: all(self.fact(name) == ("off", "bmc") for name in NAMES))
        while True:
            seen = len(self.looks)
            await asyncio.sleep(0.5)
            if len(self.looks) == seen:
                break
        self.looks.clear()

    def push(self, name: str, message: str, *, ago: float = 0.0, args: Sequence[str] = ()) -> None:
        """The BMC pushes an event of its system."""
        root = self.server.url(name)
        record = {
            "MessageId": message,
            "Message": f"{message} {ago}",
            "MessageArgs": list(args),
            "EventTimestamp": datetime.fromtimestamp(time.time() - ago, UTC).isoformat(timespec="milliseconds"),
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }
        self.hub.receive(self.hub.destination(root), json.dumps({"Events": [record]}).encode())


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    server = BmcServer(SimNodes(len(NAMES), names=NAMES, timing=Timing(scale=0.01)))
    await server.start()
    store, client = MemoryStore(), RedfishClient(Credentials("root", "simulated"))
    bmcs = Bmcs(client)
    driver = BmcDriver(bmcs)
    controller = Controller(store, Model.of(HARDWARE), {"bmc": driver}, name="c1")
    fleet = OpenFleet(controller, Settings(state_dir=tmp_path))
    hub = EventHub(
        tmp_path / "events.db",
        store,
        fleet.ledger,
        Seal([b"k" * 32]),
        bmcs,
        RedfishSubscriptions(client),
        owner="c1",
        addresses=bmc_addresses(fleet.registry),
        looked=controller.look_soon,
        told=tells(fleet, driver),
    )
    here = Ground(server, fleet, hub, driver)
    await controller.start()
    await fleet.edits.create_nodes(simulated_nodes(len(NAMES), bmc_base=server.address), "test")
    await fleet.settled(await store.revision())
    await hub.start()
    try:
        yield here
    finally:
        await hub.stop()
        await controller.stop()
        await driver.close()
        await bmcs.close()
        await server.stop()


async def test_an_event_of_power_is_a_fact_with_its_source_and_time_and_nobody_looks(ground: Ground) -> None:
    await ground.ready()
    begun = time.time()
    ground.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOn", ago=0.2)
    await ground.until(lambda: ground.fact(NAMES[0])[0] == "on")
    assert ground.fact(NAMES[0]) == ("on", "bmc event")
    seen = ground.fleet.view.node(ground.fleet.registry.index_of(NAMES[0])).facts["power"].seen
    assert seen is not None and seen < begun, "as old as the BMC says that it is"
    assert ground.looks == []


async def test_a_real_bmc_that_is_listened_to_tells_it_itself(ground: Ground) -> None:
    await ground.ready()
    async with asyncio.timeout(60):
        while not all(ground.server.bmc(name).events.streams for name in NAMES):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    ground.looks.clear()
    await ground.bmcs.open(ground.server.url(NAMES[1])).set_power("on")
    await ground.until(lambda: ground.fact(NAMES[1]) == ("on", "bmc event"))
    assert ground.looks == []


async def test_power_that_is_told_to_be_gone_is_told_to_who_speaks_to_agents(ground: Ground) -> None:
    dark: list[str] = []
    await ground.ready()
    ground.driver.dark.append(dark.extend)
    ground.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOn", ago=0.2)
    await ground.until(lambda: ground.fact(NAMES[0])[0] == "on")
    ground.push(NAMES[0], "ResourceEvent.1.3.ResourcePoweredOff")
    await ground.until(lambda: ground.fact(NAMES[0]) == ("off", "bmc event"))
    assert dark == [NAMES[0]]


@pytest.mark.parametrize(
    ("message", "ago"),
    [("ResourceEvent.1.3.ResourcePoweredOn", FRESH + 5.0), ("ResourceEvent.1.3.ResourcePoweringOn", 0.0)],
    ids=["old", "not there yet"],
)
async def test_what_is_not_clear_or_not_new_has_the_node_looked_at(ground: Ground, message: str, ago: float) -> None:
    await ground.ready()
    ground.push(NAMES[0], message, ago=ago)
    await ground.until(lambda: ground.looks)
    assert set(ground.looks) == {NAMES[0]}
    assert ground.fact(NAMES[0]) == ("off", "bmc"), "the BMC, asked, says otherwise"
