"""How watts are split: which caps, and whose, where there is not enough for everybody.

``propose`` says what may be sent now on the way to wanted caps, ``level`` gives one level to all, and ``start_caps``
shares out what is free among nodes that are to start. What nodes may draw, they ask the ledger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strata.power.capping.ledger import Ledger
from strata.power.capping.terms import NOTHING, Bounds, Column, Commands, Limits, Mask, Rows, Use


def level(ledger: Ledger, now: float, caps: Column, limits: Limits) -> Column:
    """``caps``, or where they do not all fit, one level for everybody, as far as their lowest allows. Where jobs do
    not ask, nodes that are off are left enough to start with their lowest: nobody else would make room for them."""
    low, high = ledger.ratings.low, ledger.ratings.high
    kept = 0.0 if ledger.asks else float(ledger.starting(low)[ledger.use == Use.OFF].sum())
    return _lowered(ledger, now, np.clip(caps, low, high), low, limits.site - kept)


def propose(
    ledger: Ledger,
    now: float,
    targets: Column,
    limits: Limits,
    *,
    groups: Rows | None = None,
    rank: Column | None = None,
) -> Commands:
    """The commands that may be sent now on the way to ``targets`` (NaN: leave it as it is).

    Rows with the same number in ``groups`` (0 and up; below: by itself) are raised all together or not at all, in
    the order of their ``rank``, lowest first. What is more than a ramp allows in a minute goes in steps. While more
    may be drawn than is allowed, nodes are lowered even where nobody asked for it, and nothing is raised. Nodes
    with a command under way are left alone.
    """
    worst = ledger.worst()
    over = float(worst.sum()) > limits.site
    wanted = np.clip(targets, ledger.ratings.low, ledger.ratings.high)
    if over:
        wanted = np.fmin(wanted, _shed(ledger, now, limits.site))
    free = ~ledger.in_flight
    down = free & (wanted < ledger.cap)
    if not over:
        down_to = Bounds(float(worst.sum()) - limits.floor, limits.ramp_down, ledger.fallen.within(now))
        wanted = stepped(down, ledger.cap, wanted, worst - ledger.drawn(wanted), down_to, groups, rank)
        freed = np.where(down, worst - ledger.drawn(wanted), 0.0)
        down &= fitting(down, freed, down_to.now, groups, rank) | (freed == 0)
    up = np.zeros(len(ledger), np.bool_)
    if not over:
        up = free & (wanted > ledger.cap)
        up_to = ledger.bounds_up(now, limits)
        wanted = stepped(up, ledger.cap, wanted, ledger.drawn(wanted) - worst, up_to, groups, rank)
        up &= fitting(up, np.where(up, ledger.drawn(wanted) - worst, 0.0), up_to.now, groups, rank)
    rows = np.flatnonzero(down | up)
    return Commands(rows, wanted[rows]) if len(rows) else NOTHING


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


def _shed(ledger: Ledger, now: float, site: float) -> Column:
    """The caps, level over all busy nodes as far as their lowest allows, that bring the machine under ``site``.

    Commands under way are taken to arrive, until their time is over.
    """
    ceiling = ledger.ceiling()
    lowered = _lowered(ledger, now, ceiling, np.minimum(ceiling, ledger.ratings.low), site)
    found: Column = np.where(ledger.bound_by_cap(ledger.use), lowered, ceiling)
    return found


def _lowered(ledger: Ledger, now: float, caps: Column, lowest: Column, site: float) -> Column:
    """``caps``, lowered to the highest level in whole watts that keeps the machine under ``site``."""
    lowest = np.where(ledger.in_flight & (ledger.until <= now), ledger.ceiling(), lowest)
    caps = np.maximum(caps, lowest)
    if float(ledger.drawn(caps).sum()) <= site:
        return caps
    bottom, top = 0, int(np.ceil(caps.max(initial=0.0)))
    while top - bottom > 1:
        level = (bottom + top) // 2
        if float(ledger.drawn(np.clip(caps, lowest, np.maximum(level, lowest))).sum()) > site:
            top = level
        else:
            bottom = level
    found: Column = np.clip(caps, lowest, np.maximum(bottom, lowest))
    return found


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
