"""An over-provisioned machine: each job's cap follows what the job draws, so that what it does not need feeds others.

The rules are those of the CAPMC paper, section II.E. Where they contradict one another (a job that draws more than its
cap may rise to), the upper bounds win: they are limits, and the lower ones are kindness.
"""

from __future__ import annotations

import numpy as np

from strata.power.capping.terms import Column
from strata.power.policies.policy import NodePower, OverProvisioned
from strata.power.policies.view import Jobs, View


def targets(part: OverProvisioned, nodes: NodePower, now: float, jobs: Jobs, *, aggressive: bool) -> Column:
    """The cap that each job is to have, in whole watts; NaN: leave it."""
    margins = part.margins
    upper = np.minimum.reduce([np.full(len(jobs.cap), nodes.high), jobs.upcap, jobs.cap + part.rise])
    lower = np.maximum.reduce(
        [
            jobs.cap - part.fall,
            jobs.life + margins.life,
            jobs.hour + margins.m60,
            jobs.half_hour + margins.m30,
            jobs.quarter + margins.m15,
            jobs.minute + margins.m1,
            np.full(len(jobs.cap), nodes.low),
        ]
    )
    # A cap of its own that is below the lowest is not a contradiction: nodes take no less.
    upper = np.maximum(upper, nodes.low)
    found = np.minimum(np.ceil(lower), upper) if aggressive else upper
    quiet = (jobs.ends - now <= part.quiet) | (now - jobs.started <= part.quiet) | (now - jobs.changed < part.quiet)
    return np.where(quiet, np.nan, found)


def over(part: OverProvisioned, nodes: NodePower, now: float, view: View) -> tuple[Column, Column]:
    """The cap of each node, and who is raised first: those whose job is closest to its cap."""
    aggressive = part.mood == "aggressive" or (part.mood == "by-demand" and len(view.waiting.nodes) > 0)
    caps, rank = np.full(len(view.use), np.nan), np.zeros(len(view.use))
    rows = np.flatnonzero(view.job >= 0)
    if len(rows):
        of = view.job[rows]
        caps[rows] = targets(part, nodes, now, view.jobs, aggressive=aggressive)[of]
        rank[rows] = (view.jobs.cap - view.jobs.minute)[of]
    return caps, rank
