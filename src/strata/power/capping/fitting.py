"""Who fits into the watts that there are, where not everybody does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.terms import Column, Mask, Rows

_SKIPS = 32
"""How many raises that do not fit are passed over for smaller ones behind them."""


def fitting(chosen: Mask, watts: Column, room: float, groups: Rows | None, rank: Column | None) -> Mask:
    """Which of the ``chosen`` rows fit into ``room`` watts, whole groups at a time, lowest rank first."""
    fits = np.zeros(len(chosen), np.bool_)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return fits
    if float(watts[rows].sum()) <= room:
        fits[rows] = True
        return fits
    member, order = together(rows, groups, rank)
    need = np.bincount(member, watts[rows])
    granted = np.zeros(len(need), np.bool_)
    for _ in range(_SKIPS):
        small = np.cumsum(need[order]) <= room
        count = len(order) if small.all() else int(np.argmin(small))
        granted[order[:count]] = True
        room -= float(need[order[:count]].sum())
        order = order[count + 1 :]
        if not len(order):
            break
    fits[rows[granted[member]]] = True
    return fits


def together(rows: Rows, groups: Rows | None, rank: Column | None) -> tuple[Rows, Rows]:
    """Which group each of ``rows`` is in, numbered from 0; and the groups in the order in which they are served."""
    own = -1 - rows
    keys = own if groups is None else np.where(groups[rows] < 0, own, groups[rows])
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(rank[rows][first], kind="stable") if rank is not None else np.argsort(first)
    return member.reshape(-1), order


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
