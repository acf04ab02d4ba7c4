"""A controller over simulated BMCs on sockets, and the hub that hears what they say by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.fleet.access.sealing import Seal
from strata.fleet.controller.controller import Controller
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.events.hub import EventHub
from strata.hardware.events.site import bmc_addresses
from strata.hardware.layer import tells
from strata.hardware.model import LAYER as HARDWARE
from strata.store.memory import MemoryStore
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet


class ToldPower(NamedTuple):
    """All of it, running."""

    server: BmcServer
    fleet: OpenFleet
    hub: EventHub
    driver: BmcDriver


@contextlib.asynccontextmanager
async def told_power(
    directory: Path, nodes: int, *, scale: float = 0.01, believed: bool = True, **more: Any
) -> AsyncIterator[ToldPower]:
    """``scale``: of the times that simulated nodes take. ``believed``: what BMCs say of power is a fact; else it has
    their nodes looked at. ``more``: of the hub."""
    names = [node.name for node in simulated_nodes(nodes)]
    server = BmcServer(SimNodes(nodes, names=names, timing=Timing(scale=scale)))
    async with contextlib.AsyncExitStack() as parts:
        await server.start()
        parts.push_async_callback(server.stop)
        store, client = MemoryStore(), RedfishClient(Credentials("root", "simulated"))
        bmcs = Bmcs(client)
        parts.push_async_callback(bmcs.close)
        driver = BmcDriver(bmcs)
        parts.push_async_callback(driver.close)
        controller = Controller(store, Model.of(HARDWARE), {"bmc": driver}, name="c1")
        fleet = OpenFleet(controller, Settings(state_dir=directory))
        hub = EventHub(
            directory / "events.db",
            store,
            fleet.ledger,
            Seal([b"k" * 32]),
            bmcs,
            RedfishSubscriptions(client),
            owner=controller.name,
            addresses=bmc_addresses(fleet.registry),
            looked=controller.look_soon,
            **({"told": tells(fleet, driver)} if believed else {}),
            **{"mine": controller.leads, **more},
        )
        await controller.start()
        parts.push_async_callback(controller.stop)
        await fleet.edits.create_nodes(simulated_nodes(nodes, bmc_base=server.address), "test")
        await fleet.settled(await store.revision())
        await hub.start()
        parts.push_async_callback(hub.stop)
        yield ToldPower(server, fleet, hub, driver)
