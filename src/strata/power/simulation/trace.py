"""Traces of jobs: generated from a seed, or recorded (``trace_files``). Columns, a row per job, in order of arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.terms import Column, Rows

LEVELS = 32
"""How many different draws a job goes through before they repeat."""

RUN_MEDIAN, RUN_SIGMA, RUN_LONGEST = 45 * 60.0, 1.1, 12 * 3600.0
"""Run times: log-normal."""
LARGEST_PART = 16
"""The largest job takes this part of the machine; sizes are log-uniform below it."""
OVERESTIMATE = (1.5, 4.0)
"""Time limits are this many times the run time: uniform."""
SENSITIVITY = (0.3, 0.8)
"""How much of the power that a cap takes away is speed: the exponent of ``simulation.world``, uniform."""
DRAW = (0.45, 0.65, 1.0)
"""Mean draw while computing, as parts of the highest: triangular."""
CAPPED_BY_USER, UPCAP = 0.1, 0.75
"""Part of the jobs with a cap asked for by the user, and which part of the highest draw that is."""
WOBBLE = 0.06
"""How far a job's draw strays from its mean: normal, this part of it."""


class Trace(NamedTuple):
    """Jobs. Times are seconds from the beginning."""

    submit: Column
    nodes: Rows
    seconds: Column
    """Run time without any cap."""
    limit: Column
    """Time limit."""
    watts: Column
    """Mean draw of a node, without any cap."""
    sensitivity: Column
    upcap: Column
    """Cap asked for by the user; infinite: none."""
    queue: Rows
    """Number of the queue; -1: any."""

    def __len__(self) -> int:
        return len(self.submit)

    def levels(self, job: int, high: float) -> Column:
        """What a node of ``job`` draws, phase by phase: the same in every simulation."""
        noise = np.random.default_rng(job).normal(1.0, WOBBLE, LEVELS)
        found: Column = np.minimum(self.watts[job] * noise, high)
        return found


def generate(
    seed: int, *, nodes: int, days: float, high: float, load: float = 1.1, queues: int = 0, backlog: float = 1.0
) -> Trace:
    """Jobs that ask for ``load`` times what ``nodes`` can do in ``days``; ``backlog`` machines full come at once."""
    luck = np.random.default_rng(seed)
    capacity = nodes * days * 86400.0 * load
    biggest = max(nodes / LARGEST_PART, 1.0)
    sizes, spans, asked = np.empty(0, np.int64), np.empty(0), 0.0
    while asked < capacity:
        more = np.maximum(np.exp(luck.uniform(0.0, np.log(biggest), 500)) if biggest > 1 else np.ones(500), 1.0)
        sizes = np.concatenate([sizes, np.round(more).astype(np.int64)])
        spans = np.concatenate([spans, np.clip(luck.lognormal(np.log(RUN_MEDIAN), RUN_SIGMA, 500), 60.0, RUN_LONGEST)])
        asked = float((sizes * spans).sum())
    count = int(np.searchsorted(np.cumsum(sizes * spans), capacity)) + 1
    sizes, spans = sizes[:count], spans[:count]
    submit = np.sort(luck.uniform(0.0, days * 86400.0, count))
    submit[: int(np.searchsorted(np.cumsum(sizes), nodes * backlog))] = 0.0
    return Trace(
        submit=submit,
        nodes=sizes,
        seconds=spans,
        limit=spans * luck.uniform(*OVERESTIMATE, count),
        watts=high * luck.triangular(*DRAW, count),
        sensitivity=luck.uniform(*SENSITIVITY, count),
        upcap=np.where(luck.random(count) < CAPPED_BY_USER, high * UPCAP, np.inf),
        queue=luck.integers(0, queues, count) if queues else np.full(count, -1, np.int64),
    )
