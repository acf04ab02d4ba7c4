"""How fast a whole fleet gets from off to ready, over seven mutations a node, with the whole controller.

    .venv/bin/python bench/converge.py --nodes 100000 --json
    .venv/bin/python bench/converge.py --nodes 10000 --sockets --json

The nodes are in the store, the controller starts and knows nothing of them; then the desire is sent, and the clock
starts. It stops when every node is seen to be at its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import uvloop
from controlled import GOAL, LIFTED, MUTATIONS, all_ready, controlled, describe, in_process, over_sockets, simulator
from measure import Figures, Gauge, arguments, cpu_seconds, main, own_peak_mb, peak_mb, say, scratch, show

from strata.core.driver import Driver
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.desires.records import DocumentSpec
from strata.fleet.metrics import Metrics
from support.rooms import OpenFleet


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--sockets", action="store_true", help="a simulator in a process of its own, over HTTP")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=10.0, help="seconds; a short one shows what a slow fleet does")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which to give up")
    given = parser.parse_args()
    if given.nodes < 1:
        parser.error("--nodes: at least 1")
    with scratch() as directory:
        measure = _over_sockets if given.sockets else _in_process
        show(measure(given, directory), as_json=given.json)


def _in_process(given: argparse.Namespace, directory: Path) -> Figures:
    nodes, drivers = in_process(given.nodes, given.seed)
    figures = uvloop.run(_converge(given, directory, drivers, ""))
    counts, twice = nodes.effects.counts(), nodes.effects.twice()
    if twice or counts != dict.fromkeys(MUTATIONS, given.nodes):
        raise SystemExit(f"the nodes were told something else than they should: {counts}, twice: {twice[:3]}")
    return figures


def _over_sockets(given: argparse.Namespace, directory: Path) -> Figures:
    async def measure(address: str) -> Figures:
        async with over_sockets(address) as drivers:
            return await _converge(given, directory, drivers, address)

    with simulator(given.nodes, given.seed) as (address, pid):
        before, begun = cpu_seconds(pid), time.perf_counter()
        figures = uvloop.run(measure(address))
        return figures | {
            "simulator_peak_rss_mb": peak_mb(pid),
            "simulator_cores": (cpu_seconds(pid) - before) / (time.perf_counter() - begun),
        }


async def _converge(given: argparse.Namespace, directory: Path, drivers: Mapping[str, Driver], address: str) -> Figures:
    say(f"writing {given.nodes:,} nodes to the store", quiet=given.json)
    create = await describe(directory, given.nodes, address)
    loading = Gauge()
    async with controlled(directory, drivers, given.seed, given.lease) as service:
        load, gauge = loading.seconds, Gauge()
        await service.put_document(LOCAL_ADMIN, "bench", DocumentSpec(name="bench", select="*", set=GOAL), None)
        acknowledged = gauge.seconds
        progress = asyncio.create_task(_progress(service, gauge, given.json))
        try:
            await all_ready(service, given.limit)
        finally:
            progress.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await progress
        seconds, cores = gauge.seconds, gauge.cores
        mutations = _counted(service.controller.metrics)
        steps, engine = _steps(service.controller.metrics)
        history = await _written(service, gauge) - seconds
        revision = await service.controller.store.revision()
    return {
        "nodes": given.nodes,
        "seconds": seconds,
        "peak_rss_mb": own_peak_mb(),
        "mutations": mutations,
        "mutations_per_s": mutations / seconds,
        "create_s": create,
        "load_s": load,
        "acknowledge_s": acknowledged,
        "history_s": history,
        "engine_s": engine,
        "steps": steps,
        "cores": cores,
        "store_revisions": revision,
        "drivers": "sockets" if given.sockets else "in-process",
        "lifted_budgets": [LIFTED],
        "seed": given.seed,
    }


async def _written(service: OpenFleet, gauge: Gauge) -> float:
    """When all that happened was in the history."""
    recorder = service.controller.recorder
    while True:
        await recorder.flush()
        revision = await service.controller.store.revision()
        await service.registry.reached(revision)
        await recorder.flush()
        if recorder.history is None or recorder.history.last_revision >= revision:
            return gauge.seconds


async def _progress(service: OpenFleet, gauge: Gauge, quiet: bool) -> None:
    while True:
        ready = service.controller.counts()["ready"]
        say(f"{gauge.seconds:6.1f} s  {ready:>9,} ready", quiet=quiet)
        await asyncio.sleep(1)


def _counted(metrics: Metrics) -> int:
    """Mutations that drivers said were done."""
    return sum(
        int(sample.value)
        for metric in metrics.driver_nodes.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
        and sample.labels["action"] in MUTATIONS
        and sample.labels["outcome"] == "done"
    )


def _steps(metrics: Metrics) -> tuple[int, float]:
    """How many steps the engine took, and for how long in all."""
    found = {sample.name: sample.value for metric in metrics.step_seconds.collect() for sample in metric.samples}
    return int(found["strata_engine_step_seconds_count"]), found["strata_engine_step_seconds_sum"]


if __name__ == "__main__":
    main(run)
