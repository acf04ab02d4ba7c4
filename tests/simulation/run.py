"""Runs seeds: ``python tests/simulation/run.py --seeds 1000``. Prints each broken promise with its seed."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation import promises
from simulation.mechanisms import ALL, Mechanisms
from simulation.world import Plot, World
from strata.virtual import timewarp


def run_seed(seed: int, mechanisms: Mechanisms = ALL, plot: Plot | None = None, looked_for: int | None = None) -> World:
    """One run with all checks; its violations are in the world. ``looked_for``: end once this promise is broken."""
    world = World(seed, mechanisms=mechanisms, plot=plot)
    world.looked_for = looked_for
    for watch in promises.BEFORE:
        watch(world)
    timewarp.run(world.run(promises.AFTER, promises.AFTER_IN_THE_WORLD))
    return world


def story(world: World) -> list[tuple[float, int, str]]:
    """What the devices were told, in order: equal for two runs of one seed."""
    rows = world.sim.effects.rows
    return [(float(r["time"]), int(r["node"]), world.sim.effects.mutations[r["mutation"]]) for r in rows]


def _one(seed: int) -> tuple[int, list[tuple[int, str]], int, int]:
    logging.disable(logging.NOTSET)
    try:
        world = run_seed(seed)
    except Exception as error:
        return seed, [(-1, f"the run itself failed: {type(error).__name__}: {error}")], 0, 0
    return seed, world.violations, len(world.sim.effects), world.crash_count


def main() -> int:
    """Run many seeds on all cores."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    given = parser.parse_args()
    began, bad, effects, crashes = time.monotonic(), 0, 0, 0
    with multiprocessing.Pool() as pool:
        seeds = range(given.first, given.first + given.seeds)
        for done, (seed, violations, acted, crashed) in enumerate(pool.imap_unordered(_one, seeds), 1):
            effects += acted
            crashes += crashed
            bad += bool(violations)
            for promise, how in violations[:3]:
                print(f"seed {seed}: promise {promise}: {how}", flush=True)
            if done % 50 == 0 or done == given.seeds:
                print(f"{done}/{given.seeds} seeds, {bad} bad, {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(f"{given.seeds - bad} passed, {bad} failed ({effects} effects, {crashes} crashes)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
