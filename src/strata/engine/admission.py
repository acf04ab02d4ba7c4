"""Admission: which nodes may start their next mutation.

Asks holds, freezes, back-off, canaries, the failure-rate stop, budgets and guards, in this order.

Knows what the nodes want to start (``Progress.next``), not why. What is
started is followed by ``strata.engine.in_flight``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from strata.core.column import Indices
from strata.core.distinct import distinct, united
from strata.core.model import Model, Mutation
from strata.engine import faults
from strata.engine.budgets import Budgets, Demand
from strata.engine.canaries import Canaries
from strata.engine.decisions import Kind
from strata.engine.effects import Act, Ask
from strata.engine.in_flight import InFlight
from strata.engine.places import Places
from strata.engine.progress import Phase, Progress, Urgency, Wait
from strata.engine.settings import EngineSettings
from strata.engine.table import FleetTable


class _Question:
    """Guards being asked for some nodes about one mutation."""

    def __init__(self, mutation: int, nodes: Indices, pending: int) -> None:
        self.mutation = mutation
        self.nodes = nodes
        self.pending = pending
        self.refusals: dict[int, tuple[int, str]] = {}  # position → (guard's number, why not)


class Admission:
    """All brakes of one engine."""

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        table: FleetTable,
        progress: Progress,
        in_flight: InFlight,
        places: Places,
        canaries: Canaries,
    ) -> None:
        self.model = model
        self.settings = settings
        self.table = table
        self.progress = progress
        self._in_flight = in_flight
        self._places = places
        self.canaries = canaries
        self.budgets = Budgets(model)
        self.guards = list(model.guards)
        """By number, as ``Progress.refused_by`` holds them."""
        self._questions: dict[int, tuple[_Question, int]] = {}
        self._next_question = 1

    def start(self, now: float, asks: list[Ask], acts: list[Act]) -> None:
        """Start what the brakes let through; note of the rest what it waits for."""
        progress = self.progress
        wanting = np.flatnonzero(
            progress.alive & (progress.epoch > 0) & (progress.phase == Phase.IDLE) & (progress.kind == Kind.ACT)
        )
        if not len(wanting):
            return
        early = progress.not_before[wanting] > now
        late = wanting[early]
        progress.wait[late] = np.where(progress.refused_by[late] >= 0, Wait.GUARD, Wait.BACKOFF)
        progress.wait[late[progress.fault[late]]] = Wait.FAULT
        progress.wait[wanting[progress.frozen[wanting]]] = Wait.FROZEN
        progress.wait[wanting[progress.held[wanting]]] = Wait.HELD
        free = ~progress.frozen[wanting] & ~progress.held[wanting]
        able = self.canaries.admit(wanting[~early & free], wanting[free])
        if not len(able):
            return
        self._second_chance(able[progress.fault[able]])
        away = progress.alive & (progress.kind != Kind.READY) & (progress.kind != Kind.UNMANAGED)
        elsewhere = self._elsewhere(now)
        demand = Demand(self._busy(elsewhere), np.flatnonzero(away), self._standing, elsewhere, self._places)
        steps = {number: able[progress.next[able] == number] for number in distinct(progress.next[able]).tolist()}
        # Who is out already goes on before others are taken out.
        for number in sorted(steps, key=lambda number: not self._places.any_held(steps[number])):
            nodes = steps[number]
            nodes = nodes[np.lexsort((progress.waiting_since[nodes], progress.urgency[nodes]))]
            under_way = int(np.count_nonzero((progress.phase != Phase.IDLE) & (progress.mutation == number)))
            allowance = self._in_flight.breakers[number].allowance(now, under_way)
            if allowance is not None:
                progress.wait[nodes[allowance:]] = Wait.STOPPED
                nodes = nodes[:allowance]
            mutation = self._in_flight.mutations[number]
            nodes = self._admit(mutation, nodes, now, demand)
            if not len(nodes):
                continue
            demand.busy[mutation.name] = np.r_[demand.busy.get(mutation.name, nodes[:0]), nodes]
            progress.wait[nodes] = Wait.NOTHING
            if mutation.guards:
                self._ask(number, nodes, now, asks)
            else:
                self._in_flight.launch(number, nodes, now, acts)

    def answered(self, ask: int, refusals: Sequence[str], now: float, acts: list[Act]) -> None:
        """A guard has answered; once all have, those who got no refusal start."""
        found = self._questions.pop(ask, None)
        if found is None:
            return
        question, guard = found
        for position, refusal in enumerate(refusals):
            if refusal:
                question.refusals[position] = (guard, refusal)
        question.pending -= 1
        if question.pending:
            return
        progress = self.progress
        mine = (progress.phase[question.nodes] == Phase.ASKING) & (
            progress.mutation[question.nodes] == question.mutation
        )
        refused = np.zeros(len(question.nodes), dtype=bool)
        for position, (number, text) in question.refusals.items():
            if mine[position]:
                refused[position] = True
                node = int(question.nodes[position])
                progress.refused_by[node] = number
                progress.reasons[node] = f"{self.guards[number]} says no: {text}"
                progress.not_before[node] = now + self.model.guards[self.guards[number]].ask_again_after
        asked = question.nodes[mine]
        progress.phase[asked] = Phase.IDLE
        progress.mutation[asked] = -1
        progress.refused_by[question.nodes[mine & ~refused]] = -1
        progress.wait[question.nodes[refused]] = Wait.GUARD
        # What the answer was asked for must still be what is wanted.
        good = question.nodes[mine & ~refused]
        braked = progress.held[good] | progress.frozen[good] | progress.dirty[good]
        self._in_flight.launch(question.mutation, good[~braked], now, acts)

    def ask_again(self) -> None:
        """Whoever is waiting for a guard's answer lines up anew: the budgets that let it through are others now."""
        asking = np.flatnonzero(self.progress.phase == Phase.ASKING)
        self.progress.phase[asking] = Phase.IDLE
        self.progress.mutation[asking] = -1
        self.progress.touch(asking, Urgency.NEWS)

    def _admit(self, mutation: Mutation, nodes: Indices, now: float, demand: Demand) -> Indices:
        admitted, verdict = self.budgets.admit(mutation.name, nodes, now, demand)
        refused = nodes[verdict >= 0]
        self.progress.wait[refused] = Wait.BUDGET
        self.progress.wait_on[refused] = verdict[verdict >= 0]
        return admitted

    def _standing(self, mutation: str) -> Indices:
        """The nodes on which the change is in force, or may be: what is not known to be otherwise counts."""
        declared = self.model.mutations[mutation]
        column = self.table.columns[declared.variable]
        in_force = (column.fact == column.word_code(declared.to)) | (column.fact == 0)
        return np.flatnonzero(self.progress.alive & in_force)

    def _second_chance(self, nodes: Indices) -> None:
        """Faulted nodes whose time has come: one more try, and a single failure faults them again."""
        if len(nodes):
            self.progress.fault[nodes] = False
            self.progress.failures[nodes] = self.settings.failures_to_fault - 1
            self._in_flight.event(nodes, faults.over("trying again"))

    def _busy(self, elsewhere: Mapping[str, Indices]) -> dict[str, Indices]:
        under_way = np.flatnonzero(self.progress.phase != Phase.IDLE)
        numbers = self.progress.mutation[under_way]
        busy = {
            self._in_flight.mutations[n].name: under_way[numbers == n] for n in distinct(numbers).tolist() if n >= 0
        }
        for name, nodes in elsewhere.items():
            busy[name] = united(busy.get(name, nodes), nodes)
        return busy

    def _elsewhere(self, now: float) -> dict[str, Indices]:
        found: dict[str, Indices] = {}
        for one in self._in_flight.foreign.values():
            # Long after it must have shown, the facts tell more than the intent.
            if now < one.heard + 2 * self.model.mutations[one.mutation].timeout:
                found[one.mutation] = united(found.get(one.mutation, one.nodes), one.nodes)
        return found

    def _ask(self, number: int, nodes: Indices, now: float, asks: list[Ask]) -> None:
        mutation = self._in_flight.mutations[number]
        question = _Question(number, nodes, len(mutation.guards))
        self.progress.phase[nodes] = Phase.ASKING
        self.progress.mutation[nodes] = number
        self.progress.since[nodes] = now
        for guard in mutation.guards:
            self._questions[self._next_question] = (question, self.guards.index(guard))
            asks.append(Ask(self._next_question, guard, mutation.name, nodes))
            self._next_question += 1
