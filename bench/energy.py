"""How true the energy of jobs is: what is told, what it is said to be wrong by, and what it is wrong by.

    .venv/bin/python bench/energy.py --json

Simulated nodes do one job after the other. Their BMCs' counters count in 0.1, 0.01 and 0.001 kWh, stand still from some
time on, begin anew at an end that nobody knows, or tell nothing for minutes; they are looked at every ten seconds, with
the collector's jitter. Then jobs of a minute to four hours are asked for, each of six nodes that have one kind of
counter each. ``within``: the share of answers about a node of which the truth is within the stated error.
``stated_by_real``: the mean of the stated errors by the mean of the real ones. Both are of all ``--worlds`` together:
the questions about one overlap, so that they are right or wrong together. ``worlds`` has both figures of each.
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
    parser.add_argument("--worlds", type=int, default=8, help="of such nodes, one after the other")
    parser.add_argument("--seconds", type=int, default=18_000, help="that they are looked at")
    parser.add_argument("--windows", type=int, default=10_000, help="answers about a job and a node, in each world")
    parser.add_argument("--seed", type=int, default=1, help="of the first world; the next has the next")
    given = parser.parse_args()
    if min(given.each, given.windows, given.worlds) < 1 or given.seconds < 1200:
        parser.error("--each, --windows, --worlds: at least 1; --seconds: at least 1200")
    worlds = []
    begun = time.perf_counter()
    for seed in range(given.seed, given.seed + given.worlds):
        with scratch() as directory:
            worlds.append(uvloop.run(_verdicts(given, seed, directory)))
        say(f"world {seed}: {_figures('', worlds[-1])}", quiet=given.json)
    found = [one for world in worlds for one in world]
    figures: Figures = {"windows": len(found), "seed": given.seed, "seconds": time.perf_counter() - begun}
    figures |= _figures("", found)
    for kind in KINDS:
        figures |= _figures(f"{kind.replace(' ', '_')}_", [one for one in found if one.kind == kind])
    each = [_figures("", world) for world in worlds]
    figures["worlds"] = [[one["within"], one["stated_by_real"]] for one in each]
    show(figures, as_json=given.json)


async def _verdicts(given: argparse.Namespace, seed: int, directory: Path) -> list[Verdict]:
    world = Metered(given.each, given.seconds, seed)
    series = Series.in_file(directory / "telemetry.db", clock=lambda: 4e9, hold=HOLD, lateness=45.0)
    await series.start()
    try:
        for batch in world.samples():
            await series.append(batch)
        return await verdicts(series, world, -(-given.windows // len(KINDS)))
    finally:
        await series.close()


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
