"""What is more than a ramp allows in a minute: it goes in steps, as large as there is room for now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.fitting import together
from strata.power.capping.terms import Column, Mask, Rows

_LEAST = 0.1
"""The smallest step, as a part of the ramp: many tiny ones would be many commands."""


class Bounds(NamedTuple):
    """By how many watts what may be drawn can move one way."""

    whole: float
    """In all: to the limit, or to the floor."""
    ramp: float
    """Within any minute."""
    moved: float
    """Within this one already."""

    @property
    def now(self) -> float:
        """At once."""
        return min(self.whole, self.ramp - self.moved) if self.whole > 0 else self.whole


def stepped(
    chosen: Mask, cap: Column, wanted: Column, need: Column, bounds: Bounds, groups: Rows | None, rank: Column | None
) -> Column:
    """``wanted``, with a step on the way instead for the first group of the ``chosen`` rows that ``need`` more than the
    ramp. One that would not fit in the end stays as it is."""
    rows = np.flatnonzero(chosen)
    if not len(rows) or np.isinf(bounds.ramp) or bounds.now < _LEAST * bounds.ramp:
        return wanted
    member, order = together(rows, groups, rank)
    needs = np.bincount(member, need[rows])
    large = order[(needs[order] > bounds.ramp) & (needs[order] <= bounds.whole)]
    if not len(large):
        return wanted
    rows = rows[member == large[0]]
    way = wanted[rows] - cap[rows]
    steps = np.floor(np.abs(way) * (bounds.now / needs[large[0]]))
    # Of many nodes none might get a whole watt: the first ones get it.
    ahead = np.flatnonzero(steps < np.abs(way))[: max(0, int(bounds.now - steps.sum()))]
    steps[ahead] = np.minimum(steps[ahead] + 1, np.abs(way)[ahead])
    found = wanted.copy()
    found[rows] = cap[rows] + np.sign(way) * steps
    return found
