"""How much may happen at once: who of those that want to start may, and who has to wait for which budget.

Several controllers share every limit by the nodes that they lead. Each computes its share from its own nodes alone,
rounded down to whole nodes; the one who holds the baton (``fleet.controller.leadership``), which goes round, may use
one more wherever rounding left one over. So together they keep every limit whatever each knows of the others, and
nobody starves. What was begun under older shares still counts against the whole.

What stands is not over when it was done: a controller that takes nodes over has what stands on them, which may be more
than its share, and two others would both go for what is left. So a budget of what stands is used by whoever holds the
baton.

A budget of disruption counts who holds a place in it (``strata.engine.disruption``). It slows down and does not forbid:
where nobody who holds one goes on by himself, one more may go. Limits that are set while Strata runs forbid: who is
broken is out of service like any other, and a person decides what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.distinct import among, distinct, without
from strata.core.model import LIMITS, Budget, Model
from strata.engine.disruption import Places

Keys = npt.NDArray[np.int32]
Amounts = npt.NDArray[np.float64]

_ROUNDING = 1e-9  # a product that is whole must not be rounded to the next below


class Shares(NamedTuple):
    """Which nodes we lead, and whether we hold the baton."""

    ours: npt.NDArray[np.bool_]
    baton: bool


class Demand(NamedTuple):
    """What the whole fleet is doing, under whoever's lead, as far as we know; for budgets to count."""

    busy: dict[str, Indices]
    """Mutation → nodes that undergo it."""
    unavailable: Indices
    """Nodes that are not at their goal."""
    standing: Callable[[str], Indices]
    """Mutation → nodes on which its change is, or may be, in force."""
    elsewhere: Mapping[str, Indices] = {}
    """Mutation → nodes that undergo it under the lead of others, or were when we lost it."""
    places: Places | None = None
    """Who holds places in the budgets of disruption; None: nobody."""


class _Buckets:
    """One way of dividing the fleet, with our share of each bucket's limit and, for a rate, tokens."""

    def __init__(
        self,
        budget: Budget,
        keys: Keys,
        weights: Amounts | None,
        shares: Shares | None,
        now: float,
        most: Amounts | None = None,
    ) -> None:
        """``most``: a limit for each bucket, where the budget itself has none."""
        self.keys = keys
        self.weights = weights if weights is not None else np.ones(len(keys))
        inside = np.flatnonzero(keys >= 0)
        count = int(keys.max(initial=-1)) + 1
        self._ours = np.ones(len(keys), dtype=bool) if shares is None else shares.ours
        whole, mine = self._sum(inside, count), self._sum(inside[self._ours[inside]], count)
        self._heaviest = np.zeros(count)
        np.maximum.at(self._heaviest, keys[inside], self.weights[inside])
        limits = np.full(count, np.inf) if most is None else most[:count].astype(np.float64)
        if budget.limit is not None:
            limits = np.minimum(limits, budget.limit)
        if budget.percent is not None:
            # At least one node: a budget slows down, it does not forbid. A freeze forbids.
            limits = np.minimum(limits, np.maximum(self._heaviest, np.floor(whole * budget.percent / 100)))
        self.whole_limits = limits
        self.limits = limits
        if shares is not None and budget.standing:
            self.limits = limits if shares.baton else np.zeros(count)
        elif shares is not None:
            self.limits = _share(limits, self._heaviest, mine / np.maximum(whole, 1e-9), shares.baton)
        self._rate = None if budget.rate is None else budget.rate * mine / np.maximum(whole, 1e-9)
        self._tokens = np.ones(count) if self._rate is None else np.maximum(1.0, self._rate)
        self._filled = now

    def room(self, in_use: Indices, moving: npt.NDArray[np.bool_], now: float) -> Amounts:
        """How much more may start, per bucket, when ``in_use`` counts already; of these the ``moving`` make room."""
        inside = self.keys[in_use] >= 0
        in_use, moving = in_use[inside], moving[inside]
        ours = in_use[self._ours[in_use]]
        room = np.minimum(
            self.limits - self._sum(ours, len(self.limits)),
            self.whole_limits - self._sum(in_use, len(self.limits)),
        )
        if not moving.all():
            still = (self._sum(in_use, len(room)) > 0) & (self._sum(in_use[moving], len(room)) == 0)
            room = np.where(still, np.maximum(room, np.minimum(self.limits, self._heaviest)), room)
        if self._rate is not None:
            gained = self._rate * max(0.0, now - self._filled)
            self._tokens = np.minimum(self._tokens + gained, np.maximum(1.0, self._rate))
            self._filled = now
            room = np.where(self._tokens >= 1, np.minimum(room, np.floor(self._tokens)), 0)
        return np.maximum(room, 0)

    def spend(self, nodes: Indices) -> None:
        """``nodes`` start now."""
        if self._rate is not None:
            keys = self.keys[nodes]
            self._tokens -= np.bincount(keys[keys >= 0], minlength=len(self._tokens))

    def _sum(self, nodes: Indices, count: int) -> Amounts:
        return np.bincount(self.keys[nodes], weights=self.weights[nodes], minlength=count).astype(np.float64)


def _share(limits: Amounts, unit: Amounts, part: Amounts, baton: bool) -> Amounts:
    """The ``part`` of each limit, in whole units.

    With the baton: all that the others, however many they are, can never claim; with one leader that is everything.
    """
    finite = np.isfinite(limits)
    units = np.floor(np.where(finite, limits, 0) / np.maximum(unit, 1e-9) + _ROUNDING)
    mine = units - np.floor(units * (1 - part) + _ROUNDING) if baton else np.floor(units * part + _ROUNDING)
    return np.where(finite, mine * unit, np.inf)


class _Meter:
    """One budget over the fleet."""

    def __init__(self, budget: Budget, mutations: frozenset[str]) -> None:
        self.budget = budget
        self.mutations = mutations
        self.divisions: list[_Buckets] = []

    def in_use(self, demand: Demand, nobody: Indices) -> Indices:
        """The nodes that count."""
        places = demand.places
        if self.budget.unavailable:
            whole = nobody if places is None else places.serving(self.budget.name)
            return without(demand.unavailable, whole)
        parts = [demand.busy[name] for name in self.mutations if name in demand.busy]
        if places is not None:
            parts.append(places.taken(self.budget.name))
            parts += [
                demand.elsewhere[name] for name in places.leading_up(self.budget.name) if name in demand.elsewhere
            ]
        if self.budget.standing:
            parts += [demand.standing(name) for name in self.mutations]
        return distinct(np.concatenate(parts)) if parts else nobody


class Budgets:
    """All budgets of a model. ``admit`` is asked once per mutation and step."""

    def __init__(self, model: Model) -> None:
        self._meters: dict[str, _Meter] = {}
        self._of_mutation: dict[str, list[str]] = {name: [] for name in model.mutations}
        # Limits first: whom they refuse must not take the room of a wider budget from those who could use it.
        for budget in sorted(model.budgets.values(), key=lambda budget: budget.per != LIMITS):
            names = frozenset(m.name for m in model.mutations.values() if budget.brakes(m))
            self._meters[budget.name] = _Meter(budget, names)
            for name in names:
                self._of_mutation[name].append(budget.name)

    @property
    def names(self) -> list[str]:
        """Budgets in the order of their numbers."""
        return list(self._meters)

    def next_room(self, number: int, now: float) -> float:
        """When it is worth asking budget ``number`` again: a rate fills by itself, a limit only when something ends."""
        budget = list(self._meters.values())[number].budget
        return now + (max(0.05, 1 / budget.rate) if budget.rate else 5.0)

    def set_buckets(
        self,
        name: str,
        divisions: Sequence[Keys],
        now: float,
        *,
        weights: Amounts | None = None,
        shares: Shares | None = None,
        most: Sequence[Amounts] | None = None,
    ) -> None:
        """Tell which bucket of budget ``name`` each node is in; -1: the budget does not concern it.

        Several divisions where a node can be in several buckets at once (groups): all of them must have room.
        ``most``: for each division the limits of its buckets, where the budget itself has none.
        """
        meter = self._meters[name]
        meter.divisions = [
            _Buckets(meter.budget, keys, weights, shares, now, None if most is None else most[at])
            for at, keys in enumerate(divisions)
        ]

    def set_numbers(self, budget: Budget) -> None:
        """Go by other numbers of a budget from the next ``set_buckets`` on; whom it brakes, and by which buckets, stays
        as it is. What has begun under the old ones goes on, and counts."""
        self._meters[budget.name].budget = budget

    def places_left(self, places: Places) -> float:
        """How many more nodes may go out of service now, over the fleet: what the tightest budget of disruption has
        left, of the whole and not of our share."""
        left = np.inf
        for name, meter in self._meters.items():
            if places.counts(name) and meter.divisions:
                most = max(float(division.whole_limits.sum()) for division in meter.divisions)
                left = min(left, most - len(places.taken(name)))
        return max(0.0, left)

    def admit(self, mutation: str, nodes: Indices, now: float, demand: Demand) -> tuple[Indices, npt.NDArray[np.int16]]:
        """Split ``nodes`` (the most urgent first): those that may start, and for each whom it has to wait for.

        The second array is aligned with ``nodes``: -1 admitted, else the number of the budget that said no.
        """
        verdict = np.full(len(nodes), -1, dtype=np.int16)
        needed = {} if demand.places is None else demand.places.needed(nodes)
        for number, (name, meter) in enumerate(self._meters.items()):
            if name in self._of_mutation[mutation]:
                concerned = np.arange(len(nodes))
            elif name in needed:
                concerned = np.flatnonzero(needed[name])
            else:
                continue
            if not meter.divisions:
                continue
            in_use = meter.in_use(demand, nodes[:0])
            strict = meter.budget.per == LIMITS
            places = demand.places if demand.places is not None and demand.places.counts(name) else None
            if places is not None:
                # Who has a place goes before who wants one.
                concerned = concerned[np.argsort(~among(nodes[concerned], in_use), kind="stable")]
            if not meter.budget.unavailable and not strict:
                # Somebody may have begun one of these before: it is charged here, and not twice.
                in_use = without(in_use, nodes[concerned])
            moving = np.ones(len(in_use), dtype=bool)
            if places is not None and not strict:
                moving = places.moving(name, in_use, demand.elsewhere.values())
            for division in meter.divisions:
                open_ = concerned[verdict[concerned] == -1]
                keys = division.keys[nodes[open_]]
                if meter.budget.unavailable or strict:
                    # A node that is out already goes on, or may be mended: that takes nobody else away.
                    keys = np.where(among(nodes[open_], in_use), -1, keys)
                room = np.append(division.room(in_use, moving, now), np.inf)  # the last is for -1
                refused = _running_total(keys, division.weights[nodes[open_]]) > room[keys]
                verdict[open_[refused]] = number
        admitted = nodes[verdict == -1]
        for name in self._of_mutation[mutation]:
            for division in self._meters[name].divisions:
                division.spend(admitted)
        return admitted, verdict


def _running_total(keys: Keys, weights: Amounts) -> Amounts:
    """For each position: the weight of itself and of all earlier ones with the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    total = np.cumsum(weights[order])
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.zeros(0, dtype=bool)
    before = np.where(starts, total - weights[order], -np.inf)
    found = np.empty(len(keys))
    found[order] = total - np.maximum.accumulate(before)
    return found
