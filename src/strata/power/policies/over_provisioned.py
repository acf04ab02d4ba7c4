"""An over-provisioned machine: each job's cap follows what the job draws, so that what it does not need feeds others.

The rules are those of the CAPMC paper, section II.E. Where they contradict one another (a job that draws more than its
cap may rise to), the upper bounds win: they are limits, and the lower ones are kindness.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from strata.core.units import Seconds, Watts
from strata.power.capping.terms import Column
from strata.power.policies.policy import NodePower, Part, Policy, Rule
from strata.power.policies.view import Actions, Jobs, View


class Margins(Part, frozen=True):
    """Watts by which a job's cap stays above what it drew, on average over so many minutes."""

    life: Watts = Watts(10)
    m60: Watts = Watts(7)
    m30: Watts = Watts(5)
    m15: Watts = Watts(4)
    m1: Watts = Watts(4)


class OverProvisioned(Rule, frozen=True):
    """More nodes than the site can feed at once: caps follow what jobs draw, and what is left feeds more jobs."""

    says_caps: ClassVar[bool] = True

    mood: Literal["aggressive", "gentle", "by-demand"] = "by-demand"
    """The lowest cap that the rules allow, the highest, or the lowest only while there are jobs that wait."""
    rise: Watts = Watts(7)
    """The most by which a cap is raised at a time."""
    fall: Watts = Watts(5)
    quiet: Seconds = Seconds(60)
    """A job's cap is left alone for so long after its start and after a change, and before its end."""
    margins: Margins = Margins()

    def step(self, policy: Policy, now: float, view: View, actions: Actions) -> Actions:
        """The cap of each node, and who is raised first: those whose job is closest to its cap."""
        aggressive = self.mood == "aggressive" or (self.mood == "by-demand" and len(view.waiting.nodes) > 0)
        caps, rank = np.full(len(view.use), np.nan), np.zeros(len(view.use))
        rows = np.flatnonzero(view.job >= 0)
        if len(rows):
            of = view.job[rows]
            caps[rows] = targets(self, policy.nodes, now, view.jobs, aggressive=aggressive)[of]
            rank[rows] = (view.jobs.cap - view.jobs.minute)[of]
        return actions._replace(caps=caps, rank=rank)


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
