"""How long a rollout takes over many nodes of which some are bad, with its controller killed again and again, against
what its limits allow at best. In virtual time: the nodes are simulated, the controller, its records and the engine are
the real ones.

    .venv/bin/python bench/rollout.py --nodes 10000 --json

``ratio_to_minimum``: virtual seconds it took, over those that it would take if every place in every limit were always
used by nodes of the mean speed, nobody failed and nobody were killed. ``limit_exceeded``: how often, looking every
second, more nodes of a group were really out of service than may be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from measure import Figures, Gauge, arguments, main, own_peak_mb, say, show

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.platform.rollouts.records import ENDED, RolloutSpec
from strata.platform.rollouts.waves import Wave
from strata.virtual import timewarp
from strata.virtual.fleet.faults import SECONDS

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.simulated_cluster import Cluster, twin

NAME = "bench"
WAY = ("leave-workload", "switch-image", "configure", "join-workload")
"""What a node undergoes."""
PACE = 1.1
"""How much longer simulated nodes take than a node of middling speed, on the mean."""
RACKS = 10
LONGEST = 7 * 86400.0


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--bad", type=float, default=0.02, help="part of the nodes that do not take the change")
    parser.add_argument("--kills", type=int, default=5, help="how often the controller is killed")
    parser.add_argument("--limit", type=int, default=10, help="percent of each group that may be out of service")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.nodes < RACKS:
        parser.error(f"--nodes: at least {RACKS}")
    show(timewarp.run(_roll(given)), as_json=given.json)


async def _roll(given: argparse.Namespace) -> Figures:
    gauge = Gauge()
    cluster = Cluster(twin(given.nodes, racks=RACKS), given.seed, step_gap=0.5)
    groups = tuple(f"rack{rack}" for rack in range(RACKS))
    spec = RolloutSpec(
        select="*",
        set={"image": "v2"},
        groups=groups,
        waves=("1", "10%", "100%"),
        max_unavailable=f"{given.limit}%",
        max_failures="5%",
        soak=30.0,
    )
    await cluster.open(cluster.store)
    await cluster.describe()
    await cluster.settled()
    say(f"{given.nodes:,} nodes are ready after {gauge.seconds:.0f} s", quiet=given.json)
    cluster.change = {"image": ("v2",)}
    prepared = cluster.rollouts.prepare(LOCAL_ADMIN, spec)
    canary = {cluster.fleet.registry.names[node] for node in prepared.waves[0].nodes.tolist()}
    chosen = np.random.default_rng(given.seed).random(given.nodes) < given.bad
    # A bad canary ends it at once, as it should: not what is measured here.
    cluster.bad = frozenset(name for name, bad in zip(cluster.names, chosen.tolist(), strict=True) if bad) - canary
    cluster.most = {bucket.name: bucket.most for bucket in prepared.buckets}
    minimum = _minimum(cluster, prepared.waves, spec.soak)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await cluster.rollouts.begin(LOCAL_ADMIN, NAME, spec)
    for kill in range(given.kills):
        end = began + minimum * (kill + 1) / (given.kills + 1)
        await cluster.watch(lambda end=end: loop.time() >= end, LONGEST)
        await cluster.crash()
        say(f"{loop.time() - began:8.0f} s  killed", quiet=given.json)
        await cluster.open(cluster.store)
    await cluster.watch(lambda: cluster.rollouts.kept(NAME).state in ENDED, LONGEST)
    view = await cluster.rollouts.one(LOCAL_ADMIN, NAME)
    seconds = loop.time() - began
    await cluster.close()
    await cluster.store.close()
    if view.state != "done":
        raise SystemExit(f"it is {view.state}: {view.reason}; {view.waits_for}")
    return {
        "nodes": given.nodes,
        "seconds": seconds,
        "minimum_seconds": minimum,
        "ratio_to_minimum": seconds / minimum,
        "limit_exceeded": len(cluster.exceeded),
        "peak_out": max(cluster.peaks.values()),
        "limit_out": max(cluster.most.values()),
        "bad": len(cluster.bad),
        "ready": view.counts.ready,
        "failed": view.counts.failed,
        "kills": given.kills,
        "real_seconds": gauge.seconds,
        "peak_rss_mb": own_peak_mb(),
        "seed": given.seed,
    }


def _minimum(cluster: Cluster, waves: Sequence[Wave], soak: float) -> float:
    """Seconds when every place is always used, and every node is of middling speed."""
    way = PACE * sum(SECONDS[mutation] for mutation in WAY)
    registry = cluster.fleet.registry
    total = 0.0
    for wave in waves:
        rounds = [int(registry.groups.mask(name)[wave.nodes].sum()) / most for name, most in cluster.most.items()]
        total += max(1.0, *rounds) * way + soak
    return total


if __name__ == "__main__":
    main(run)
