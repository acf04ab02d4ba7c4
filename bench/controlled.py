"""A whole controller over a simulated fleet, for benchmarks: SQLite store, history, leadership, intents, everything.

The budget ``bmc-rate`` (starts a second over all controllers) is lifted, so that the engine is measured and not its
brake. All other budgets stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
from measure import child

from strata.core.driver import Driver
from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.fleet.controller.controller import Controller
from strata.fleet.registry.edits import Edits
from strata.fleet.registry.registry import Registry
from strata.fleet.settings import LeadershipSettings
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.audit import Ledger
from strata.store.sqlite.store import SqliteStore
from strata.virtual.bmc.server import SIMULATED_ACCOUNT
from strata.virtual.fleet.agents import AgentDriver
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_groups, simulated_nodes
from strata.virtual.fleet.nodes import SimNodes

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.rooms import OpenFleet

GOAL = {"power": "on", "os": "up", "image": "v1", "personality": "active", "config": "r1", "workload": "in"}
"""What every node is to become."""

MUTATIONS = ("power-on", "boot", "enrol", "load-image", "start-personality", "configure", "join-workload")
"""The way there from a node that is off."""

LIFTED = "bmc-rate"


def model() -> Model:
    """The built-in model without the lifted budget."""
    budgets = tuple(budget for budget in HARDWARE.budgets if budget.name != LIFTED)
    return Model.of(msgspec.structs.replace(HARDWARE, budgets=budgets), PROVISIONING, PLATFORM)


async def describe(directory: Path, count: int, bmc_base: str = "") -> float:
    """Write ``count`` nodes and their groups into a new store in ``directory``; how long the nodes took."""
    store = SqliteStore(directory / "strata.db")
    try:
        registry = Registry(store, model())
        edits = Edits(registry, Ledger(store))
        await registry.load()
        nodes = simulated_nodes(count, bmc_base=bmc_base)
        begun = time.perf_counter()
        results = await edits.create_nodes(nodes, "bench")
        took = time.perf_counter() - begun
        if not all(result.ok for result in results):
            raise SystemExit(f"not created: {next(result for result in results if not result.ok)}")
        await registry.load()
        for group in simulated_groups(nodes):
            members = registry.indices_of(np.concatenate([np.arange(a, b + 1) for a, b in group.members]))
            await edits.put_group(group.name, members, "bench")
    finally:
        await store.close()
    return took


@contextlib.asynccontextmanager
async def controlled(
    directory: Path, drivers: Mapping[str, Driver], seed: int = 0, lease: float = 10.0
) -> AsyncIterator[OpenFleet]:
    """A controller that starts on the store in ``directory`` and knows no fact yet."""
    store = SqliteStore(directory / "strata.db")
    try:
        leadership = LeadershipSettings(lease=lease, renew_every=lease * 0.3)
        controller = Controller(
            store,
            model(),
            drivers,
            name="bench",
            history=directory / "history.db",
            leadership=leadership,
            seed=seed,
        )
        service = OpenFleet(controller, Settings(state_dir=directory))
        await controller.start()
        try:
            yield service
        finally:
            await service.operations.close()
            await controller.stop()
    finally:
        await store.close()


async def all_ready(service: OpenFleet, limit: float) -> None:
    """Wait until every node is at its goal."""
    begun = time.monotonic()
    count = len(service.registry)
    while (counts := service.controller.counts())["ready"] != count:
        if time.monotonic() - begun > limit:
            late = int(np.flatnonzero(~service.view.state_mask("ready"))[0])
            states = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
            raise SystemExit(f"after {limit:.0f} s: {states}; one of them: {service.view.why(late)}")
        await asyncio.sleep(max(0.05, count * 5e-7))  # counting a large fleet must not be what is measured


def in_process(count: int, seed: int) -> tuple[SimNodes, dict[str, Driver]]:
    """Simulated nodes that take no time, and their drivers. Uids are those that ``describe`` gets: from 1 on."""
    nodes = SimNodes(count, seed=seed, timing=Timing(scale=0))
    begun = time.monotonic()
    return nodes, dict(sim_drivers(nodes, lambda: time.monotonic() - begun, uids=np.arange(1, count + 1)))


@contextlib.contextmanager
def simulator(count: int, seed: int, *, scale: float = 0.0) -> Iterator[tuple[str, int]]:
    """The same nodes in a process of their own, behind sockets: its address and pid."""
    command = [sys.executable, "-m", "strata.virtual.bmc.server"]
    command += ["--nodes", str(count), "--seed", str(seed), "--scale", str(scale)]
    with child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the simulator did not start")
        yield json.loads(line)["address"], process.pid


@contextlib.asynccontextmanager
async def over_sockets(address: str) -> AsyncIterator[dict[str, Driver]]:
    """Drivers that reach the simulator at ``address``: Redfish for power, its gateway for agents."""
    account = SIMULATED_ACCOUNT
    async with contextlib.AsyncExitStack() as parts:
        controllers = Bmcs(RedfishClient(Credentials(account.user, account.password)))
        parts.push_async_callback(controllers.close)
        bmc = BmcDriver(controllers)
        parts.push_async_callback(bmc.close)
        drivers: dict[str, Driver] = {"bmc": bmc}
        for name in ("node", "workload"):
            agent = AgentDriver(name, address, account)
            parts.push_async_callback(agent.close)
            drivers[name] = agent
        yield drivers
