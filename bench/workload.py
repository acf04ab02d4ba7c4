"""What it costs to ask a real Slurm about all its nodes, and to drain many.

    .venv/bin/python bench/workload.py --json

A slurmctld with ``--nodes`` nodes that are not there. A fifth of them, scattered, is drained in one command
(``drain_s``), and some more for 50 different reasons, so that what Slurm folds is not one line. ``look_s`` is a whole
look: both questions, and reading the answers; ``read_ms`` is the reading alone, the first time, of ``bytes``;
``jobs_ms`` that of a list of half as many jobs, made up in Slurm's form, of two nodes each; ``facts_ms`` is what the
engine is told of all nodes, made from that.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from measure import Figures, arguments, main, scratch, show

from strata.platform.workload.cluster import Cluster, Look
from strata.platform.workload.driver import column
from strata.platform.workload.records import WorkloadSpec
from strata.schedulers.runner import Place, Runner
from strata.schedulers.slurm import replies
from strata.schedulers.slurm.slurm import Slurm

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.slurm import slurm, until

_MARK = "strata/0123abcd"


def run() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    options = parser.parse_args()
    with scratch() as directory:
        show(asyncio.run(_measure(directory, options.nodes)), as_json=options.json)


async def _measure(directory: Path, count: int) -> Figures:
    names, draw = [f"x{number:06d}" for number in range(1, count + 1)], random.Random(1)
    async with slurm(directory, f"x[{names[0][1:]}-{names[-1][1:]}]") as real:
        await until("slurmctld answers", lambda: "Running as primary controller" in real.said(), real)
        runner = Runner(Place(env=real.env))
        adapter = Slurm(runner, _MARK)
        begun = time.perf_counter()
        await adapter.drain(draw.sample(names, count // 5), "to switch-image")
        drained = time.perf_counter() - begun
        for number in range(50):
            await runner.run(*replies.drain(draw.sample(names, min(20, count)), "somebody", f"reason {number}"))
        replies.names.cache_clear()
        begun = time.perf_counter()
        found = await adapter.look()
        looked = time.perf_counter() - begun
        assert len(found) == count
        said = await runner.run(*replies.NODES)
    replies.names.cache_clear()
    jobs = "".join(
        f"{number}\x1fRUNNING\x1f{one},{other}\x1e\n"
        for number, (one, other) in enumerate(zip(names[::2], names[1::2], strict=False))
    )
    cluster = Cluster("bench", WorkloadSpec(kind="slurm"), adapter, clock=time.monotonic)
    return {
        "nodes": count,
        "drained": count // 5,
        "drain_s": drained,
        "look_s": looked,
        "bytes": len(said),
        "rows": said.count("\x1e"),
        "read_ms": _milliseconds(lambda: replies.nodes(said, _MARK)),
        "jobs": jobs.count("\x1e"),
        "jobs_ms": _milliseconds(lambda: replies.jobs(jobs)),
        "facts_ms": _milliseconds(lambda: column({cluster: Look(began=0.0, nodes=found)}, names)),
    }


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main(run)
