"""A whole controller over simulated nodes that serves CAPMC on a local socket, and the command that asks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.api.server import ApiServer
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.service import BmcService
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.records import DiscoverRequest
from strata.hardware.discovery.sweep import Discovery
from strata.hardware.emergency.service import EmergencyService
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.service import InventoryService
from strata.hardware.inventory.store import Inventory
from strata.power.capmc.boots import boots_of
from strata.power.capmc.service import CapmcMachine, CapmcService
from strata.power.capping.sender import CapSender
from strata.power.limits.inband import Inband, VirtualNodes
from strata.power.telemetry.columns import Kind, PowerColumns
from strata.store.protocol import Put
from support.rooms import api_services
from support.simulated_machine import SimulatedMachine, simulated_machine

READY = {
    "power": "on",
    "os": "up",
    "identity": "issued",
    "image": "v1",
    "personality": "active",
    "config": "r1",
    "workload": "in",
}


class CapmcSite:
    """All of it."""

    def __init__(self, machine: SimulatedMachine, directory: Path, inband: Inband | None = None) -> None:
        self.machine = machine
        self.service = machine.service
        self.columns = PowerColumns()
        self.socket = directory / "capmc.sock"
        fleet = machine.service
        fleet.put(BmcService(fleet, machine.bmcs.open, Seal([b"k" * 32])))
        self.emergency = fleet.put(EmergencyService(fleet, machine.bmcs))
        nodes = NodesByBmc(fleet.registry)
        self.inventory = Inventory(fleet.store, node_at=nodes.at)
        discovery = Discovery({"http": partial(crawl, machine.bmcs.redfish)})
        fleet.put(InventoryService(fleet, self.inventory, discovery, nodes))
        self.capmc = CapmcService(
            machine.service,
            self.columns,
            CapSender(machine.service, machine.bmcs.open, self.columns),
            inband=inband or VirtualNodes(directory / "inband"),
        )
        self.services = api_services(
            fleet=machine.service,
            authenticator=Authenticator(machine.service.store, machine.service.ledger),
            rooms={CapmcService: self.capmc},
        )

    @property
    def view(self) -> CapmcMachine:
        """The machine as the administrator sees it."""
        return self.capmc.of(LOCAL_ADMIN)

    @property
    def environment(self) -> dict[str, str]:
        """For the command."""
        base = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        return base | {"OS_SERVICE_URL": f"unix:{self.socket}"}

    def measure(self) -> None:
        """Note what telemetry would have seen."""
        uids, now = self.view.nodes().uids, time.time()
        least, most = np.full(len(uids), 200.0), np.full(len(uids), 2400.0)
        self.columns.put(uids, cap=0.0, cap_time=now, least=least, most=most, supply=2400.0, powerup=140.0, static=0.0)
        self.columns.put(uids, energy=uids * 1000.0, energy_time=now, power=300.0, power_time=now)
        self.columns.describe(uids, Kind("01:000d", "Compute_2400W"))

    async def discover(self, *nodes: str) -> None:
        """Have the BMCs of nodes looked at for what is in them."""
        addresses = tuple(self.machine.server.url(name) for name in nodes)
        begun = await self.service.of(InventoryService).discover(LOCAL_ADMIN, DiscoverRequest(addresses=addresses))
        over = await self.service.operations.wait(begun.id)
        assert (over.state, over.failed) == ("done", 0), over

    async def boot(self) -> None:
        """Make every node ready by magic, and wait until the controller has seen it."""
        nodes = self.machine.nodes
        nodes.put(nodes.all, now=self.machine.server.clock(), **READY)
        async with asyncio.timeout(60):
            while not self.view.nodes().ready.all():  # noqa: ASYNC110 (facts have no event)
                await asyncio.sleep(0.05)

    async def post(self, call: str, **body: Any) -> Any:
        """Ask as the command's ``json`` does; the reply."""
        return await self.ask("json", "-r", f"/capmc/{call}", stdin=json.dumps(body).encode())

    async def until(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait for what follows from a request."""
        try:
            async with asyncio.timeout(60):
                while not (await found if isinstance(found := holds(), Awaitable) else found):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"not within a minute: {what}")

    async def run(self, *arguments: str, stdin: bytes | None = None, program: str = "capmc") -> tuple[int, str, str]:
        """Run a command: status, output, errors."""
        return await asyncio.to_thread(run_command, program, arguments, self.environment, stdin)

    async def ask(self, *arguments: str, stdin: bytes | None = None) -> Any:
        """Run ``capmc``, which must succeed in silence; its reply."""
        status, out, err = await self.run(*arguments, stdin=stdin)
        assert (status, err) == (0, ""), (status, out, err)
        return json.loads(out)


def run_command(
    program: str, arguments: tuple[str, ...], environment: dict[str, str], stdin: bytes | None
) -> tuple[int, str, str]:
    """Run ``capmc`` or ``cnselect``. Blocks."""
    code = f"from strata.capmc_cli.{program} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@contextlib.asynccontextmanager
async def capmc_site(
    directory: Path, count: int, *, labels: dict[str, str] | None = None, inband: Inband | None = None
) -> AsyncIterator[CapmcSite]:
    """Started; the nodes are ready and measured."""
    async with simulated_machine(directory, count, on=True) as machine:
        site = CapmcSite(machine, directory, inband)
        if labels:
            await _label(site, labels)
        await site.boot()
        site.measure()
        await site.inventory.start()
        server = ApiServer(site.services, site.socket)
        await server.start()
        boots = boots_of(site.capmc)
        await boots.start()
        try:
            yield site
        finally:
            await site.emergency.stop()
            await boots.stop()
            await server.stop()
            await site.inventory.stop()


async def _label(site: CapmcSite, labels: dict[str, str]) -> None:
    """In few transactions: a thousand requests would take a minute."""
    registry, store = site.service.registry, site.service.controller.store
    nodes = [node for node in registry.nodes if node is not None and node.nid is not None]
    changed = [msgspec.structs.replace(node, labels={**node.labels, **labels}) for node in nodes]
    ops = [Put(f"node/{node.name}", msgspec.msgpack.encode(node)) for node in changed]
    for begin in range(0, len(ops), store.max_ops):
        await store.txn(ops[begin : begin + store.max_ops])
    await site.service.settled(await store.revision())
