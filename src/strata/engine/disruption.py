"""Places in the disruption budgets: who is out of service by our doing, from the first step that takes it out until it
is back.

A budget that brakes only destructive mutations is one of disruption. A node whose way leads through one of those needs
a place in it before the first step of that way (leaving the workload manager, say), keeps the place while it goes on,
whatever that takes, and gives it back at its goal. Places are never written down: who takes nodes over sees from the
facts which are out (``settle``), and until they have been seen, all of them may be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.distinct import among, distinct, united
from strata.core.model import LIMITS, Model, Mutation
from strata.engine.decisions import Decider, Kind
from strata.engine.progress import Phase, Progress, Wait
from strata.engine.table import FleetTable, Mask

_NOBODY: Indices = np.zeros(0, dtype=np.int64)


class _Disruption:
    """One budget of disruption."""

    def __init__(
        self, braked: frozenset[str], numbers: Sequence[int], leads_up: Sequence[Mutation], *, strict: bool
    ) -> None:
        self.strict = strict
        """Whoever is out counts, also where nobody goes on with it: nobody else goes in its stead."""
        self.braked = braked
        self.numbers = numbers
        """The same, as ``Progress.next`` holds them."""
        self.leads_up = leads_up
        """Mutations that take away what keeps a braked one from being done."""
        self.held: Mask = np.zeros(0, dtype=bool)
        self.guessed: Mask = np.zeros(0, dtype=bool)
        """Was on its way up when it was taken over. If that fails it may have been broken before: not counted."""


class Places:
    """Who holds a place in which disruption budget."""

    def __init__(self, model: Model, table: FleetTable, progress: Progress, decider: Decider) -> None:
        self._table = table
        self._progress = progress
        self._decider = decider
        self._by_name: dict[str, _Disruption] = {}
        numbers = {name: number for number, name in enumerate(model.mutations)}
        for budget in model.budgets.values():
            braked = [mutation for mutation in model.mutations.values() if budget.brakes(mutation)]
            strict = budget.per == LIMITS
            counts = budget.limit is not None or budget.percent is not None or strict
            if counts and braked and not budget.standing and all(mutation.destructive for mutation in braked):
                names = frozenset(mutation.name for mutation in braked)
                self._by_name[budget.name] = _Disruption(
                    names, [numbers[name] for name in names], _leading_up(model, braked), strict=strict
                )
        self._budgets = list(self._by_name.values())
        self._chains: Mask = np.zeros((len(self._budgets), 0), dtype=bool)

    def grow(self, size: int) -> None:
        """Make room for ``size`` nodes."""
        for budget in self._budgets:
            more = np.zeros(size - len(budget.held), dtype=bool)
            budget.held, budget.guessed = np.r_[budget.held, more], np.r_[budget.guessed, more]

    def counts(self, name: str) -> bool:
        """Whether there are places in a budget."""
        return name in self._by_name

    def needed(self, nodes: Indices) -> dict[str, Mask]:
        """Budget → which of ``nodes`` have a step ahead of them that it brakes; only where some have."""
        if not self._budgets:
            return {}
        rows = self._rows()[:, self._progress.decision[nodes]]
        return {name: row for name, row in zip(self._by_name, rows, strict=True) if row.any()}

    def taken(self, name: str) -> Indices:
        """The nodes that hold a place in a budget, that are about to, or that may."""
        budget = self._by_name.get(name)
        if budget is None:
            return _NOBODY
        progress = self._progress
        asking = progress.phase == Phase.ASKING
        if asking.any():
            asking &= self._ahead(budget, progress.decision)
        ours = progress.epoch > 0
        may = (budget.guessed & ~progress.fault) | (progress.unsettled & ours)
        taken = np.flatnonzero(progress.alive & (budget.held | asking | may))
        # What others do is known by what it has come to.
        others = np.flatnonzero(
            progress.alive & ~ours & (progress.kind == Kind.ACT) & (~progress.fault | budget.strict)
        )
        return united(taken, others[self._out(budget, others)]) if len(others) else taken

    def leading_up(self, name: str) -> frozenset[str]:
        """The mutations that take away what keeps a budget's own from being done."""
        budget = self._by_name.get(name)
        return frozenset(mutation.name for mutation in budget.leads_up) if budget is not None else frozenset()

    def out(self) -> Indices:
        """The nodes that hold a place in any budget, that are about to, or that may."""
        return distinct(np.concatenate((_NOBODY, *(self.taken(name) for name in self._by_name))))

    def any_held(self, nodes: Indices) -> bool:
        """Whether one of ``nodes`` has a place."""
        return any(budget.held[nodes].any() for budget in self._budgets)

    def moving(self, name: str, nodes: Indices, elsewhere: Collection[Indices]) -> Mask:
        """Which of ``nodes`` will give their place back by themselves, as far as one can tell: nothing keeps them from
        going on but what they hold the place for. ``elsewhere``: with whom others are busy."""
        budget, progress = self._by_name.get(name), self._progress
        if budget is None:
            return np.ones(len(nodes), dtype=bool)
        stopped = progress.held[nodes] | progress.frozen[nodes] | progress.fault[nodes]
        stopped |= progress.kind[nodes] == Kind.STUCK
        # At the gate that it has the place for, a node waits until a guard or the failure-rate stop lets it through;
        # whoever waits for room in the budget itself, or for a canary, waits for others.
        at_the_gate = among(progress.next[nodes], budget.numbers)
        stopped |= among(progress.wait[nodes], (Wait.GUARD, Wait.STOPPED)) & ~at_the_gate
        stopped |= among(progress.wait[nodes], (Wait.BUDGET, Wait.CANARY))
        moving = ~stopped | (progress.phase[nodes] != Phase.IDLE)
        # Why another does not go on with a node is known to him alone.
        others = progress.epoch[nodes] == 0
        if others.any():
            moving[others] = among(nodes[others], np.concatenate((_NOBODY, *elsewhere)))
        found: Mask = moving
        return found

    def serving(self, name: str) -> Indices:
        """The nodes with a way through a budget that nothing has been done to: what would have to be taken away first
        is still there."""
        budget, progress = self._by_name.get(name), self._progress
        if budget is None or not budget.leads_up:
            return _NOBODY
        nodes = np.flatnonzero(progress.alive & (progress.phase == Phase.IDLE))
        nodes = nodes[self._ahead(budget, progress.decision[nodes])]
        there = np.zeros(len(nodes), dtype=bool)
        for mutation in budget.leads_up:
            column = self._table.columns[mutation.variable]
            there |= among(column.fact[nodes], [column.word_code(word) for word in mutation.start])
        return nodes[there]

    def take(self, nodes: Indices) -> None:
        """Something begins on these nodes: whoever has a braked step ahead is out from now on."""
        for budget, row in zip(self._budgets, self._rows(), strict=True):
            budget.held[nodes] |= row[self._progress.decision[nodes]]

    def resume(self, mutation: str, nodes: Indices) -> None:
        """The same of what was begun before we led these nodes."""
        for budget in self._budgets:
            if mutation in budget.braked or any(mutation == one.name for one in budget.leads_up):
                budget.held[nodes] = True

    def give_back(self, nodes: Indices) -> None:
        """These are back, or not ours to count any more."""
        for budget in self._budgets:
            budget.held[nodes] = budget.guessed[nodes] = False

    def settle(self, nodes: Indices) -> None:
        """Of nodes that were taken over and have been seen: who is not at its goal and not whole was being changed."""
        progress = self._progress
        nodes = nodes[progress.unsettled[nodes] & (progress.epoch[nodes] > 0) & (progress.kind[nodes] != Kind.LOOK)]
        if not len(nodes):
            return
        progress.unsettled[nodes] = False
        acting = nodes[progress.kind[nodes] == Kind.ACT]
        for budget, row in zip(self._budgets, self._rows(), strict=True):
            ahead = row[progress.decision[acting]]
            budget.guessed[acting] = ~ahead
            budget.held[acting] |= ahead & self._out(budget, acting)

    def _out(self, budget: _Disruption, nodes: Indices) -> Mask:
        """Of which nodes something has been taken away that kept the budget's mutations from being done."""
        out = np.zeros(len(nodes), dtype=bool)
        for mutation in budget.leads_up:
            column = self._table.columns[mutation.variable]
            out |= column.fact[nodes] == column.word_code(mutation.to)
        return out

    def _ahead(self, budget: _Disruption, decisions: npt.NDArray[np.int32]) -> Mask:
        """Whether the ways of these decisions lead through a step that ``budget`` brakes."""
        ahead: Mask = self._rows()[self._budgets.index(budget), decisions]
        return ahead

    def _rows(self) -> Mask:
        """Per budget and decision: whether the plan leads through a step that the budget brakes. The last column is for
        nodes without a decision."""
        decisions = self._decider.decisions
        known = self._chains.shape[1] - 1
        if known < len(decisions):
            rows = np.zeros((len(self._budgets), len(decisions) + 1), dtype=bool)
            rows[:, : max(0, known)] = self._chains[:, : max(0, known)]
            for number in range(max(0, known), len(decisions)):
                steps = decisions[number].plan.steps
                rows[:, number] = [not budget.braked.isdisjoint(steps) for budget in self._budgets]
            self._chains = rows
        return self._chains


def _leading_up(model: Model, braked: Sequence[Mutation]) -> list[Mutation]:
    """The mutations whose end is that one of ``braked`` is no longer excluded."""
    return [
        mutation
        for mutation in model.mutations.values()
        if mutation not in braked
        and any(
            mutation.start & one.excludes.get(mutation.variable, frozenset())
            and mutation.to not in one.excludes[mutation.variable]
            for one in braked
        )
    ]
