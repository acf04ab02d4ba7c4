"""How long a dry run over the whole fleet takes, and how soon one node's change is acted on during a full resync.

    .venv/bin/python bench/plan.py --nodes 100000 --json

The plan is for nodes in eight different states, scattered at random over the names (the worst case for folding). The
reaction is timed from before the desire is sent to when the driver is called for the node, while every node is being
looked at and decided on again, over and over; looks take as long as real ones would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import uvloop
from controlled import GOAL, LIFTED, all_ready, controlled, describe, in_process
from measure import Figures, arguments, main, own_peak_mb, say, scratch, show

from strata.api.server import ApiServer
from strata.core.column import Column
from strata.core.driver import Batch, Driver, Outcomes
from strata.core.model import Mutation
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.desires.records import DesireChange, DocumentSpec
from strata.fleet.plans.records import PlanRequest
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet, api_services

STAGES: tuple[dict[str, str], ...] = (
    {},
    {"power": "on"},
    {"power": "on", "os": "up"},
    {"power": "on", "os": "hung"},
    {"power": "on", "os": "up", "identity": "issued"},
    {"power": "on", "os": "up", "identity": "issued", "image": "v0", "personality": "active", "config": "r0"},
    {"power": "on", "os": "up", "identity": "issued", "image": "v1", "personality": "active", "config": "r0"},
    {**GOAL, "identity": "issued"},
)
"""States that a node may be found in."""

ROUNDS = 3
CHANGES = 20


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--look-ms", type=float, default=250.0, help="how long a look at up to 1,000 nodes takes")
    given = parser.parse_args()
    if given.nodes < len(STAGES):
        parser.error(f"--nodes: at least {len(STAGES)}")
    with scratch() as directory:
        show(uvloop.run(_measure(given, directory)), as_json=given.json)


async def _measure(given: argparse.Namespace, directory: Path) -> Figures:
    nodes, quick = in_process(given.nodes, given.seed)
    stage = np.random.default_rng(given.seed).integers(0, len(STAGES), given.nodes)
    for number, values in enumerate(STAGES):
        nodes.put(np.flatnonzero(stage == number), now=0.0, **values)
    drivers = {name: Watched(driver) for name, driver in quick.items()}
    say(f"writing {given.nodes:,} nodes to the store", quiet=given.json)
    await describe(directory, given.nodes)
    async with controlled(directory, drivers, given.seed) as service:
        await _all_seen(service, nodes)
        say("planning", quiet=given.json)
        plan, classes = await _plan(service)
        async with served(service, directory) as path:
            command = await _command(path)
        say("bringing all to ready", quiet=given.json)
        await service.put_document(LOCAL_ADMIN, "bench", DocumentSpec(name="bench", select="*", set=GOAL), None)
        await all_ready(service, 300)
        for driver in drivers.values():
            driver.delay = given.look_ms / 1000
        say(f"{CHANGES} changes during a resync", quiet=given.json)
        looks = drivers["bmc"].looked
        begun = time.perf_counter()
        reactions = await _react(service, drivers["node"], given.nodes)
        took = time.perf_counter() - begun
        swept = (drivers["bmc"].looked - looks) / given.nodes
    return {
        "nodes": given.nodes,
        "plan_s": plan,
        "cli_plan_s": command,
        "classes": classes,
        "react_ms": max(reactions) * 1000,
        "react_median_ms": statistics.median(reactions) * 1000,
        "changes": len(reactions),
        "sweeps": swept,
        "sweep_s": took / swept if swept else None,
        "look_ms": given.look_ms,
        "peak_rss_mb": own_peak_mb(),
        "lifted_budgets": [LIFTED],
        "seed": given.seed,
    }


class Watched:
    """A driver that says when it was first told something of a node, and whose looks take ``delay`` seconds."""

    def __init__(self, driver: Driver) -> None:
        self.name = driver.name
        self._driver = driver
        self.delay = 0.0
        self.looked = 0
        self.waited_for: dict[str, asyncio.Future[float]] = {}

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Pass on, and note the time."""
        now = time.perf_counter()
        if self.waited_for:
            for name in self.waited_for.keys() & set(batch.names):
                self.waited_for.pop(name).set_result(now)
        return await self._driver.act(mutation, batch)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """Pass on, after a while."""
        await asyncio.sleep(self.delay)
        self.looked += len(batch)
        return await self._driver.observe(variables, batch)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Pass on."""
        return await self._driver.permits(guard, batch)


async def _all_seen(service: OpenFleet, nodes: SimNodes) -> None:
    """Wait until the controller has seen everything that there is to see."""
    columns = service.controller.engine.table.columns
    while not all(  # noqa: ASYNC110 - the engine sets no event
        (columns[name].fact[: nodes.count] != 0).all() for name in ("power", "os", "workload")
    ):
        await asyncio.sleep(0.05)


async def _plan(service: OpenFleet) -> tuple[float, int]:
    """A dry run within the service: its time (the median of some), and how many classes it found."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        report = await service.plan_many(LOCAL_ADMIN, PlanRequest(set={**GOAL, "image": "v2"}))
        msgspec.json.encode(report)
        times.append(time.perf_counter() - begun)
    return statistics.median(times), len(report.classes)


@contextlib.asynccontextmanager
async def served(service: OpenFleet, directory: Path) -> AsyncIterator[Path]:
    """The service's own API on a local socket."""
    authenticator = Authenticator(service.controller.store, service.ledger)
    await authenticator.start()
    services = api_services(
        fleet=service,
        authenticator=authenticator,
        authority=Authority.open(directory / "ca"),
    )
    server = ApiServer(services, directory / "admin.sock")
    await server.start()
    try:
        yield directory / "admin.sock"
    finally:
        await server.stop()
        await authenticator.stop()


async def _command(path: Path) -> float:
    """``strata plan`` for the same, from its start to its end."""
    words = [f"{name}={value}" for name, value in (GOAL | {"image": "v2"}).items()]
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "strata.cli", "--url", f"unix:{path}", "plan", "*", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        times.append(time.perf_counter() - begun)
        if process.returncode not in (0, 3) or not said:
            raise SystemExit(f"strata plan ended with code {process.returncode}")
    return statistics.median(times)


async def _react(service: OpenFleet, driver: Watched, count: int) -> list[float]:
    """Change one node after the other; for each, the seconds until the driver was called for it."""
    resync = asyncio.create_task(_resync(service))
    names = service.registry.names
    try:
        await asyncio.sleep(driver.delay)
        found = []
        for number in range(CHANGES):
            name = names[number * count // CHANGES]
            called = driver.waited_for[name] = asyncio.get_running_loop().create_future()
            begun = time.perf_counter()
            await service.set_desires(LOCAL_ADMIN, DesireChange(select=name, set={"config": "r2"}), False)
            found.append(await asyncio.wait_for(called, 60) - begun)
        return found
    finally:
        resync.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await resync


async def _resync(service: OpenFleet) -> None:
    """Have every node looked at and decided on, again and again."""
    controller = service.controller
    everyone = np.flatnonzero(service.registry.alive)
    while True:
        now = controller.clock.now()
        controller.engine.facts.schedule_look(everyone, None, now)
        controller.engine.progress.due[everyone] = now
        controller.wake()
        await asyncio.sleep(0.25)


if __name__ == "__main__":
    main(run)
