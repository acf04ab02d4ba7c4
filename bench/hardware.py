"""How fast BMCs of nodes are found and read: discovery, a power sweep, the same with dead ones among them.

    .venv/bin/python bench/hardware.py --json
    .venv/bin/python bench/hardware.py --discover 10000 --json

The simulator runs in a process of its own, so half of a small machine is its. A dead BMC is one that takes the
connection and says nothing. ``ratio_to_bare`` compares the requests a second of a warm sweep with those of a loop
over aiohttp that sends the same requests to the same simulator and looks at nothing, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import numpy as np
import uvloop
from controlled import simulator
from measure import Figures, Gauge, arguments, cpu_seconds, main, own_peak_mb, say, scratch, show

from strata.core.driver import Batch
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.sweep import Discovery
from strata.hardware.inventory.records import Found
from strata.hardware.inventory.store import Inventory
from strata.store.sqlite.store import SqliteStore
from strata.virtual.bmc.server import SIMULATED_ACCOUNT
from strata.virtual.fleet.names import node_names

SYSTEM = "/redfish/v1/Systems/1"


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000, help="controllers to sweep")
    parser.add_argument("--discover", type=int, default=1000, help="controllers to discover")
    parser.add_argument("--dead", type=float, default=0.1, help="share of dead ones in the last sweep")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not (given.discover > 0 and given.nodes > 0 and 0 <= given.dead < 1):
        parser.error("at least one node, and not all of them dead")
    count = max(given.nodes, given.discover)
    with scratch() as directory, simulator(count, given.seed) as (address, pid):
        before = cpu_seconds(pid)
        figures = uvloop.run(_measure(given, directory, address))
        figures["simulator_cpu_s"] = cpu_seconds(pid) - before
        show(figures, as_json=given.json)


async def _measure(given: argparse.Namespace, directory: Path, address: str) -> Figures:
    names = node_names(max(given.nodes, given.discover))
    found = await _discover(directory, [f"{address}/bmc/{name}" for name in names[: given.discover]], given.json)
    sweep, names = await _sweeps(given, names[: given.nodes], address), names[: given.nodes]
    bare = await _bare([f"{address}/bmc/{name}" for name in names])
    warm = given.nodes / sweep[f"sweep_{given.nodes}_warm_s"]
    return {
        **found,
        **sweep,
        "bare_requests_per_s": bare,
        "requests_per_s": warm,
        "ratio_to_bare": warm / bare,
        "peak_rss_mb": own_peak_mb(),
        "dead": given.dead,
        "seed": given.seed,
    }


def _bmcs() -> Bmcs:
    return Bmcs(RedfishClient(Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password)))


async def _discover(directory: Path, addresses: Sequence[str], quiet: bool) -> Figures:
    """Read every BMC and write what it told into the inventory of a SQLite store."""
    store = SqliteStore(directory / "strata.db")
    controllers = _bmcs()
    inventory = Inventory(store)
    await inventory.start()
    requests = 0

    async def walk(address: str) -> Found:
        return await crawl(controllers.redfish, address)

    gauge, batch, done = Gauge(), [], 0
    async for look in Discovery({"http": walk}).look(addresses):
        if look.found is None:
            raise SystemExit(f"{look.address} was not found: {look.why}")
        batch.append(look.found)
        if len(batch) == 200:
            await inventory.record(batch)
            done += len(batch)
            batch = []
            say(f"{gauge.seconds:6.1f} s  {done:>6,} discovered", quiet=quiet)
    await inventory.record(batch)
    seconds, cores, requests = gauge.seconds, gauge.cores, controllers.redfish.requests
    await inventory.stop()
    await controllers.close()
    await store.close()
    return {
        f"discover_{len(addresses)}_s": seconds,
        "discover_cores": cores,
        "discover_requests_each": requests / len(addresses),
    }


async def _sweeps(given: argparse.Namespace, names: Sequence[str], address: str) -> Figures:
    """A first sweep (with all logins), a second one, and a first one with dead BMCs among the others."""
    figures: Figures = {}
    alive = [f"{address}/bmc/{name}" for name in names]
    async with _driver() as driver:
        figures[f"sweep_{given.nodes}_s"], again = await _sweep(driver, names, alive, address)
        figures[f"sweep_{given.nodes}_warm_s"], _ = await _sweep(driver, names, alive, address)
    async with _grave() as dead_address, _driver() as driver:
        every = round(1 / given.dead) if given.dead else 0
        mixed = [f"{dead_address}/bmc/{names[i]}" if every and i % every == 0 else one for i, one in enumerate(alive)]
        figures[f"sweep_{given.nodes}_dead_s"], again_dead = await _sweep(driver, names, mixed, address)
    return figures | {"asked_again": again, "asked_again_dead": again_dead}


@contextlib.asynccontextmanager
async def _driver() -> AsyncIterator[BmcDriver]:
    controllers = _bmcs()
    driver = BmcDriver(controllers)
    try:
        yield driver
    finally:
        await driver.close()
        await controllers.close()


async def _sweep(driver: BmcDriver, names: Sequence[str], bmcs: Sequence[str], alive: str) -> tuple[float, int]:
    """Until every living BMC (those below ``alive``) has told the power of its node: the seconds, and how many
    were too slow to be heard the first time, as they are on a machine that is busy with other things."""
    gauge, left, again = Gauge(), np.arange(len(names)), 0
    for turn in range(20):
        batch = Batch(names=[names[i] for i in left], uids=left + 1, bmcs=[bmcs[i] for i in left])
        seen = await driver.observe(["power"], batch)
        unknown = left[seen["power"].codes == 0]
        left = unknown[[bmcs[i].startswith(alive) for i in unknown]] if len(unknown) else unknown
        if not len(left):
            return gauge.seconds, again
        again += len(left) if not turn else 0
        await asyncio.sleep(0.5)
    raise SystemExit(f"{len(left)} living controllers did not tell the power of their node")


@contextlib.asynccontextmanager
async def _grave() -> AsyncIterator[str]:
    """Takes connections and says nothing."""
    writers: set[asyncio.StreamWriter] = set()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        while await reader.read(65536):
            pass
        writers.discard(writer)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, backlog=4096)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in list(writers):
            writer.close()


async def _bare(bases: Sequence[str]) -> float:
    """Requests a second of a plain loop: as many at a time as the driver, a password with each, JSON not even read."""
    password = Credentials(SIMULATED_ACCOUNT.user, SIMULATED_ACCOUNT.password)
    gate = asyncio.Semaphore(128)
    headers = {"Authorization": password.basic(), "Accept": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as http:

        async def one(base: str) -> None:
            async with gate, http.get(base + SYSTEM) as reply:
                await reply.read()
                if reply.status != 200:
                    raise SystemExit(f"{base} answered {reply.status}")

        await asyncio.gather(*(one(base) for base in bases[:1000]))
        gauge = Gauge()
        await asyncio.gather(*(one(base) for base in bases))
        return len(bases) / gauge.seconds


if __name__ == "__main__":
    main(run)
