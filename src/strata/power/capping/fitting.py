"""Who fits into the watts that there are, where not everybody does."""

from __future__ import annotations

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
