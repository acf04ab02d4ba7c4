"""A whole controller over simulated hardware: what controllers tell becomes alerts, and facts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.events.hub import EventHub
from strata.hardware.events.site import bmc_addresses
from strata.hardware.model import LAYER as HARDWARE
from strata.store.memory import MemoryStore
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet

COUNT = 8


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):  # the engine by itself looks every 45 s: what it knows sooner, it was told
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_what_controllers_tell_becomes_alerts_and_a_change_of_power_a_fact_at_once(tmp_path: Path) -> None:
    names = [node.name for node in simulated_nodes(COUNT)]
    server = BmcServer(SimNodes(COUNT, names=names, timing=Timing(scale=0.01)))
    await server.start()
    store = MemoryStore()
    client = RedfishClient(Credentials("root", "simulated"))
    controllers = Bmcs(client)
    driver = BmcDriver(controllers)
    controller = Controller(store, Model.of(HARDWARE), {"bmc": driver}, name="c1")
    service = OpenFleet(controller, Settings(state_dir=tmp_path))
    hub = EventHub(
        tmp_path / "events.db",
        store,
        service.ledger,
        Seal([b"k" * 32]),
        controllers,
        RedfishSubscriptions(client),
        owner=controller.name,
        addresses=bmc_addresses(service.registry),
        mine=controller.leads,
        looked=controller.look_soon,
    )
    await controller.start()
    await service.edits.create_nodes(simulated_nodes(COUNT, bmc_base=server.address), "strata")
    await service.settled(await store.revision())
    await hub.start()
    alerts = AlertService(service, hub)

    def power(name: str) -> str:
        column = controller.engine.table.columns["power"]
        return column.words[column.fact[service.registry.find(name)]]

    await until(lambda: hub.poller is not None and hub.poller.looks >= COUNT and power(names[1]) == "off")
    server.bmc(names[0]).log("critical", "DIMM3 has failed", "OEM.1.0.MemoryFailure")
    await until(lambda: hub.alerts.alerts)
    page = await alerts.alerts(LOCAL_ADMIN, all_=False, limit=10, after="")
    assert [(item.node, item.severity, item.message) for item in page.items] == [
        (names[0], "critical", "DIMM3 has failed")
    ]
    await controllers.open(server.url(names[1])).set_power("on")  # by somebody else, as far as the engine knows
    await until(lambda: power(names[1]) == "on")
    await hub.stop()
    await controller.stop()
    await driver.close()
    await controllers.close()
    await server.stop()
