"""Canaries: what nobody has seen work is tried on one node, and the others wait until that one is ready.

For variables that ask for it (``Variable.canary``), per goal. Who is the canary is not kept anywhere: it is read from
the facts and from what is under way, so that a restart changes nothing.

A node that runs something (it has a value, and there is a destructive step on its way) begins nothing for a value with
which no node is ready now: not while a canary is on trial, and not after one has failed. A node that runs nothing has
nothing to lose, also where it is restarted on its way because it hangs. It waits while a canary is on trial, and is the
next one when that has failed: a broken node must not keep a machine from starting.

Several controllers see each other's canaries by their intents; two that choose in the same moment have one each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.distinct import among, distinct
from strata.core.model import WANTED, Model, Mutation
from strata.engine.decisions import Decider, Decision, Kind
from strata.engine.in_flight import InFlight
from strata.engine.progress import Phase, Progress, Wait
from strata.engine.table import FleetTable, Mask

_NOT = np.int8(0)
_LOOSE = np.int8(1)
_STRICT = np.int8(2)


class Canary(NamedTuple):
    """A node that others wait for."""

    node: int
    waiting: int


class Canaries:
    """Chooses canaries and has the others wait."""

    def __init__(
        self, model: Model, table: FleetTable, progress: Progress, decider: Decider, in_flight: InFlight
    ) -> None:
        self._progress = progress
        self._decider = decider
        self._in_flight = in_flight
        self._columns = [column for column in table.columns.values() if column.variable.canary]
        self._puts = {c.variable.name: _numbers(model, c.variable.name) for c in self._columns}
        """Variable → the mutations that give a node the value that is wanted, by number."""
        self._ways: dict[str, list[np.int8]] = {column.variable.name: [] for column in self._columns}
        """Variable → by number of the decision: whether its first step needs a canary, and how strictly."""
        self._proved: set[tuple[str, int]] = set()
        """Goals with which some node was ready while we looked, and that mean the same still."""

    def renewed(self, nodes: Indices, now: float) -> None:
        """What is wanted of the nodes stands for something else since ``now``: what was seen before proves nothing."""
        self._progress.meant_since[nodes] = now
        for column in self._columns:
            renewed = set(distinct(column.goal[nodes]).tolist())
            self._proved = {
                (name, goal) for name, goal in self._proved if name != column.variable.name or goal not in renewed
            }

    def waiting(self, nodes: Indices) -> list[Canary]:
        """The canaries that some of ``nodes`` wait for, and how many do."""
        late = nodes[(self._progress.wait[nodes] == Wait.CANARY) & (self._progress.phase[nodes] == Phase.IDLE)]
        found, counts = np.unique(self._progress.canary[late], return_counts=True)
        return [Canary(int(node), int(count)) for node, count in zip(found, counts, strict=True)]

    def admit(self, able: Indices, wanting: Indices) -> Indices:
        """Of ``able``, those that may go on; the others note for whom they wait.

        ``wanting``: all that have a step to start and no brake on, also where it is too early for it.
        """
        may = np.zeros(self._progress.size, dtype=bool)
        may[able] = True
        for column in self._columns:
            name = column.variable.name
            way = self._way(name, wanting)
            way[(way == _STRICT) & ~column.has_value(wanting)] = _NOT
            concerned = way != _NOT
            if not concerned.any():
                continue
            nodes, way = wanting[concerned], way[concerned]
            for goal in distinct(column.goal[nodes]).tolist():
                members = np.flatnonzero(self._progress.alive & (column.goal == goal))
                holds = column.satisfied(members) & (column.seen[members] > self._progress.meant_since[members])
                mine = column.goal[nodes] == goal
                self._judge(name, goal, members, holds, nodes[mine], way[mine], may)
        return able[may[able]]

    def _judge(
        self, name: str, goal: int, members: Indices, holds: Mask, nodes: Indices, way: npt.NDArray[np.int8], may: Mask
    ) -> None:
        """Take from ``may`` who of the nodes with one goal has to wait."""
        progress = self._progress
        holders = members[holds]
        if ((progress.phase[holders] == Phase.IDLE) & (progress.kind[holders] == Kind.READY)).any():
            self._proved.add((name, goal))
            return
        strict, loose = nodes[way == _STRICT], nodes[way == _LOOSE]
        if (name, goal) in self._proved:
            loose = loose[:0]  # it has worked; what runs elsewhere is not given up for it all the same
        on_trial = self._on_trial(name, members, holds)
        canary = int(on_trial[0]) if len(on_trial) else self._choose(name, members, holds, strict, loose, may)
        late = np.r_[strict, loose]
        late = late[may[late] & (late != canary)]
        may[late] = False
        progress.wait[late] = Wait.CANARY
        progress.canary[late] = canary

    def _on_trial(self, name: str, members: Indices, holds: Mask) -> Indices:
        """Nodes that are on their way to the value, or have it and are not ready yet."""
        progress = self._progress
        busy = progress.phase[members] != Phase.IDLE
        on_trial = np.zeros(len(members), dtype=bool)
        on_trial[busy] = (self._way(name, members[busy]) != _NOT) | among(
            progress.mutation[members[busy]], self._puts[name]
        )
        holders = members[holds]
        kind, braked = progress.kind[holders], progress.held[holders] | progress.frozen[holders]
        moving = ((kind == Kind.ACT) | (kind == Kind.LOOK)) & ~braked & (progress.failures[holders] == 0)
        on_trial[holds] |= (busy[holds] | moving) & ~progress.fault[holders]
        elsewhere = [one.nodes for one in self._in_flight.foreign.values() if self._is_put(name, one.mutation)]
        if elsewhere:
            on_trial |= among(members, np.concatenate(elsewhere))
        found: Indices = members[on_trial]
        return found

    def _failed(self, name: str, members: Indices, holds: Mask) -> Indices:
        """Nodes on which the value did not work, as far as we know; those that a person holds are a person's."""
        progress = self._progress
        trouble = (progress.fault[members] | (progress.failures[members] > 0)) & ~progress.held[members]
        at = np.flatnonzero(trouble & ~progress.frozen[members])
        found = [place for place in at.tolist() if holds[place] or self._failed_at_it(name, int(members[place]))]
        return members[found]

    def _failed_at_it(self, name: str, node: int) -> bool:
        number = int(self._progress.failed[node])
        if number >= 0:
            return number in self._puts[name]
        # Of a fault from before a restart, or of a node that another controller leads, there are only words.
        mutation, failed, _ = self._progress.reasons.get(node, "").partition(" failed: ")
        return bool(failed) and self._is_put(name, mutation)

    def _choose(self, name: str, members: Indices, holds: Mask, strict: Indices, loose: Indices, may: Mask) -> int:
        """The next canary, or the one that failed and that all wait for; -1: nobody is able to."""
        loose = loose[may[loose]]
        if len(loose):
            return self._first(loose, may)
        failed = self._failed(name, members, holds)
        if len(failed):
            again = failed[may[failed]]
            return int(again[0] if len(again) else failed[0])
        # Whom a guard keeps from going on may have been drained already; what cannot be tried on a node says nothing.
        strict = strict[may[strict] | (self._progress.refused_by[strict] >= 0)]
        return self._first(strict, may) if len(strict) else -1

    def _first(self, nodes: Indices, may: Mask) -> int:
        """The one that failed least, is furthest on its way, and may begin now."""
        progress = self._progress
        plans = {n: self._decider.decisions[n].plan.cost for n in distinct(progress.decision[nodes]).tolist()}
        cost = np.array([plans[number] for number in progress.decision[nodes].tolist()])
        return int(nodes[np.lexsort((nodes, ~may[nodes], cost, progress.failures[nodes]))[0]])

    def _way(self, name: str, nodes: Indices) -> npt.NDArray[np.int8]:
        """How strictly the first step of each node's way needs a canary."""
        ways, decisions = self._ways[name], self._decider.decisions
        ways += (self._strictness(name, decision) for decision in decisions[len(ways) :])
        number = self._progress.decision[nodes]
        table = np.array([*ways, _NOT], dtype=np.int8)
        return np.where(number >= 0, table[number], _NOT)

    def _strictness(self, name: str, decision: Decision) -> np.int8:
        steps = [self._in_flight.mutations[self._in_flight.numbers[step]] for step in decision.plan.steps]
        at = next((place for place, step in enumerate(steps) if _puts(step, name)), None)
        if decision.kind is not Kind.ACT or at is None:
            return _NOT
        if any(step.destructive for step in steps[: at + 1]):
            return _STRICT
        return _LOOSE if steps[0].variable == name else _NOT

    def _is_put(self, name: str, mutation: str) -> bool:
        return self._in_flight.numbers.get(mutation, -1) in self._puts[name]


def _puts(mutation: Mutation, variable: str) -> bool:
    """Whether a node has the wanted value of ``variable`` afterwards."""
    return mutation.sets.get(variable, mutation.to if mutation.variable == variable else "") == WANTED


def _numbers(model: Model, variable: str) -> tuple[int, ...]:
    return tuple(number for number, m in enumerate(model.mutations.values()) if _puts(m, variable))
