"""How true the energy of jobs is: what is told, what it is said to be wrong by, and what it is wrong by.

    .venv/bin/python bench/energy.py --json

Simulated nodes do one job after the other. Their BMCs' counters count in 0.1, 0.01 and 0.001 kWh, stand still from some
time on, begin anew at an end that nobody knows, or tell nothing for minutes; they are looked at every ten seconds, with
the collector's jitter. Then jobs of a minute to four hours are asked for, each of six nodes that have one kind of
counter each. ``within``: the share of answers about a node of which the truth is within the stated error.
``stated_by_real``: the mean of the stated errors by the mean of the real ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import uvloop
from measure import Figures, arguments, main, say, scratch, show

from strata.power.series.series import Series

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.metered import HOLD, KINDS, Metered, Verdict, verdicts


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--each", type=int, default=20, help="nodes of each kind")
    parser.add_argument("--seconds", type=int, default=18_000, help="that they are looked at")
    parser.add_argument("--windows", type=int, default=10_000, help="answers about a job and a node")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.each < 1 or given.seconds < 1200 or given.windows < 1:
        parser.error("--each, --windows: at least 1; --seconds: at least 1200")
    with scratch() as directory:
        show(uvloop.run(_measure(given, directory)), as_json=given.json)


async def _measure(given: argparse.Namespace, directory: Path) -> Figures:
    world = Metered(given.each, given.seconds, given.seed)
    series = Series.in_file(directory / "telemetry.db", clock=lambda: 4e9, hold=HOLD, lateness=45.0)
    await series.start()
    try:
        for batch in world.samples():
            await series.append(batch)
        say("all samples are in", quiet=given.json)
        begun = time.perf_counter()
        jobs = -(-given.windows // len(KINDS))
        found = await verdicts(series, world, jobs)
        seconds = time.perf_counter() - begun
    finally:
        await series.close()
    figures: Figures = {"windows": len(found), "ask_ms": 1000 * seconds / jobs, "seed": given.seed}
    figures |= _figures("", found)
    for kind in KINDS:
        figures |= _figures(f"{kind.replace(' ', '_')}_", [one for one in found if one.kind == kind])
    return figures


def _figures(before: str, found: list[Verdict]) -> Figures:
    told, truth, stated = (np.array([getattr(one, name) for one in found]) for name in ("told", "truth", "error"))
    real = np.abs(told - truth)
    return {
        f"{before}within": float((real <= stated).mean()),
        f"{before}stated_by_real": float(stated.mean() / real.mean()),
        f"{before}real_j": float(real.mean()),
        f"{before}stated_j": float(stated.mean()),
    }


if __name__ == "__main__":
    main(run)
