"""Nodes that are off and may not start: how much they need, how much there is, and at which caps they could."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.ledger import Ledger
from strata.power.capping.terms import Column, Limits, Rows


class Need(NamedTuple):
    """Watts for nodes that are off to start."""

    as_is: Column
    """With the caps that they have."""
    least: Column
    """With their lowest."""
    free: float
    """What the site's limit leaves for all of them."""
    ramp: float
    """The most that may be had within a minute."""


def need(ledger: Ledger, rows: Rows, limits: Limits) -> Need:
    """What it takes to start ``rows``."""
    lowest = np.fmax(ledger.ratings.boot[rows], np.minimum(ledger.ratings.low[rows], ledger.ceiling(rows)))
    return Need(ledger.start(rows), lowest, limits.site - float(ledger.worst().sum()), limits.ramp_up)


def start_caps(ledger: Ledger, rows: Rows, limits: Limits) -> Column:
    """The caps with which as many of ``rows`` as can be, the first of them, could start: what is free is shared out
    evenly. NaN: not even with its lowest, or it needs no lower one."""
    caps = np.full(len(rows), np.nan)
    _, least, free, ramp = need(ledger, rows, limits)
    count = int(np.searchsorted(np.cumsum(least), free, side="right"))
    now, least = ledger.ceiling(rows[:count]), least[:count]
    # What a node draws while it starts, it has anyway.
    shared = np.fmax(min(_level(now, least, free), ramp), least)
    caps[:count] = np.where(shared < now, shared, np.nan)
    return caps


def _level(now: Column, least: Column, free: float) -> float:
    """The highest cap for everybody with which they need no more than is ``free``; in whole watts."""
    if float(np.fmax(now, least).sum()) <= free:
        return np.inf
    low, high = 0.0, float(now.max(initial=0.0))
    for _ in range(40):
        level = (low + high) / 2
        if float(np.fmax(np.minimum(now, level), least).sum()) > free:
            high = level
        else:
            low = level
    return float(np.floor(low))
