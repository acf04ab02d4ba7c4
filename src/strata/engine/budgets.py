"""How much may happen at once: who of those that want to start may, and who has to wait for which budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.model import Budget, Model, Mutation

Keys = npt.NDArray[np.int32]


class _Buckets:
    """One way of dividing the fleet: a bucket per node, a limit and, for a rate, tokens per bucket."""

    def __init__(self, budget: Budget, keys: Keys, now: float) -> None:
        self.keys = keys
        self._rate = budget.rate
        sizes = np.bincount(keys[keys >= 0], minlength=1)
        self.limits = np.full(len(sizes), np.inf)
        if budget.limit is not None:
            self.limits = np.minimum(self.limits, budget.limit)
        if budget.percent is not None:
            # At least one: a budget slows down, it does not forbid. A freeze forbids.
            self.limits = np.minimum(self.limits, np.maximum(1, np.floor(sizes * budget.percent / 100)))
        self._tokens = np.full(len(sizes), max(1.0, self._rate or 0.0))
        self._filled = now

    def room(self, in_use: Indices, now: float) -> npt.NDArray[np.float64]:
        """How many more may start, per bucket, when ``in_use`` counts already."""
        keys = self.keys[in_use]
        room = self.limits - np.bincount(keys[keys >= 0], minlength=len(self.limits))
        if self._rate is not None:
            self._tokens = np.minimum(self._tokens + self._rate * max(0.0, now - self._filled), max(1.0, self._rate))
            self._filled = now
            room = np.minimum(room, np.floor(self._tokens))
        return np.maximum(room, 0)

    def spend(self, nodes: Indices) -> None:
        """``nodes`` start now."""
        if self._rate is not None:
            keys = self.keys[nodes]
            self._tokens -= np.bincount(keys[keys >= 0], minlength=len(self._tokens))


class _Meter:
    """One budget over the fleet."""

    def __init__(self, budget: Budget, mutations: frozenset[str]) -> None:
        self.budget = budget
        self.mutations = mutations
        self.divisions: list[_Buckets] = []


class Budgets:
    """All budgets of a model. ``admit`` is asked once per mutation and step."""

    def __init__(self, model: Model) -> None:
        self._meters: dict[str, _Meter] = {}
        self._of_mutation: dict[str, list[str]] = {name: [] for name in model.mutations}
        for budget in model.budgets.values():
            names = frozenset(m.name for m in model.mutations.values() if _brakes(budget, m))
            self._meters[budget.name] = _Meter(budget, names)
            for name in names:
                self._of_mutation[name].append(budget.name)

    @property
    def names(self) -> list[str]:
        """Budgets in the order of their numbers."""
        return list(self._meters)

    def set_buckets(self, name: str, divisions: Sequence[Keys], now: float) -> None:
        """Tell which bucket of budget ``name`` each node is in; -1: the budget does not concern it.

        Several divisions where a node can be in several buckets at once (groups): all of them must have room.
        """
        meter = self._meters[name]
        kept = {division.keys.tobytes(): division for division in meter.divisions}
        meter.divisions = [kept.get(keys.tobytes()) or _Buckets(meter.budget, keys, now) for keys in divisions]

    def admit(
        self,
        mutation: str,
        nodes: Indices,
        now: float,
        busy: dict[str, Indices],
        unavailable: Indices,
    ) -> tuple[Indices, npt.NDArray[np.int16]]:
        """Split ``nodes`` (the most urgent first): those that may start, and for each whom it has to wait for.

        ``busy`` maps mutations to nodes that undergo them; ``unavailable`` are all that are not at their goal. The
        second array is aligned with ``nodes``: -1 admitted, else the number of the budget that said no.
        """
        verdict = np.full(len(nodes), -1, dtype=np.int16)
        for number, (name, meter) in enumerate(self._meters.items()):
            if name not in self._of_mutation[mutation]:
                continue
            in_use = unavailable
            if not meter.budget.unavailable:
                in_use = np.concatenate([busy[m] for m in meter.mutations if m in busy] or [nodes[:0]])
            for division in meter.divisions:
                open_ = np.flatnonzero(verdict == -1)
                keys = division.keys[nodes[open_]]
                if meter.budget.unavailable:
                    # A node that is down already may be mended: that takes nobody else away.
                    keys = np.where(np.isin(nodes[open_], unavailable), -1, keys)
                room = division.room(in_use, now)
                refused = (keys >= 0) & (_rank_in_bucket(keys) >= room[np.maximum(keys, 0)])
                verdict[open_[refused]] = number
        admitted = nodes[verdict == -1]
        for name in self._of_mutation[mutation]:
            for division in self._meters[name].divisions:
                division.spend(admitted)
        return admitted, verdict


def _brakes(budget: Budget, mutation: Mutation) -> bool:
    if budget.destructive_only and not mutation.destructive:
        return False
    if budget.driver and mutation.driver != budget.driver:
        return False
    return not budget.mutations or mutation.name in budget.mutations


def _rank_in_bucket(keys: Keys) -> npt.NDArray[np.int64]:
    """For each position: how many earlier positions have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.zeros(0, dtype=bool)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first
    return rank
