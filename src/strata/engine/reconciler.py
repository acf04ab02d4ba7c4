"""The engine: looks at the whole fleet and says what to do next.

``Engine.step(now, inputs) → Effects``. Pure: no clock, no I/O; chance comes from a seed. Level-triggered: a step asks
what each node's facts and goals call for, never what happened. It does not know how effects are carried out
(``strata.control``), only that their results come back as inputs of a later step.

The order within a step is the loop of Strata: take in what was seen, end what has ended, decide per class, start what
the brakes allow, look where eyes are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.driver import Outcomes
from strata.core.model import UNKNOWN, Model, Mutation
from strata.core.state import Outcome
from strata.engine.breaker import Breaker
from strata.engine.budgets import Budgets, Demand
from strata.engine.decisions import Decider, Kind
from strata.engine.effects import Act, Answered, Ask, Change, Done, Effects, Input, Seen, Told
from strata.engine.settings import EngineSettings
from strata.engine.sight import Sight
from strata.engine.table import NEVER, FleetTable
from strata.engine.work import Phase, Urgency, Wait, Work

EVENT = "event"
"""The name under which history keeps what is not a fact: failures and faults."""

FAULT = "fault: "
"""How the event of going into a fault state begins."""


class Elsewhere(NamedTuple):
    """Something under way that is not ours to end; ``heard`` is when we learnt of it."""

    mutation: str
    nodes: Indices
    heard: float


class _Question:
    """Guards being asked for some nodes about one mutation."""

    def __init__(self, mutation: int, nodes: Indices, pending: int) -> None:
        self.mutation = mutation
        self.nodes = nodes
        self.pending = pending
        self.refusals: dict[int, tuple[int, str]] = {}  # position → (guard's number, why not)


class Engine:
    """One controller's view of the fleet and what it does about it."""

    def __init__(self, model: Model, settings: EngineSettings | None = None, seed: int = 0) -> None:
        self.model = model
        self.settings = settings or EngineSettings()
        self.table = FleetTable(model)
        self.work = Work()
        self.budgets = Budgets(model)
        self.decider = Decider(model, self.table)
        self._random = np.random.default_rng(seed)
        self.sight = Sight(model, self.settings, self.table, self.work, self._random)
        self.mutations: list[Mutation] = list(model.mutations.values())
        self._numbers = {mutation.name: number for number, mutation in enumerate(self.mutations)}
        self.guards = list(model.guards)
        self.breakers = [Breaker(self.settings) for _ in self.mutations]
        self._touched = [tuple(v for v in model.effects(m) if v != m.variable) for m in self.mutations]
        self.epochs: dict[int, int] = {}
        """Shards that we lead, and with which epoch."""
        self._questions: dict[int, tuple[_Question, int]] = {}
        self._next_question = 1
        self._next_generation = 1
        self._open: dict[int, int] = {}
        self._acting: dict[int, Indices] = {}
        self._settled: list[int] = []
        self._resumed: set[int] = set()
        self.elsewhere: dict[str, Elsewhere] = {}
        """What others have under way, or we had before we lost the lead, by the key of its intent."""
        self._abandoned: dict[int, Indices] = {}

    # ---- what the fleet is ----

    def add(self, nodes: Indices, shards: npt.NDArray[np.int32], now: float) -> None:
        """Nodes came to be, at these indices."""
        if len(nodes) and int(nodes.max()) >= self.work.size:
            self.table.grow(int(nodes.max()) + 1)
            self.work.grow(self.table.size)
            self.sight.grow(self.table.size)
        self.work.reset(nodes)
        for column in self.table.columns.values():
            column.forget_nodes(nodes)
        self.work.alive[nodes] = True
        self.work.acted_at[nodes] = now
        self.work.shard[nodes] = shards
        epochs = np.fromiter((self.epochs.get(shard, 0) for shard in shards.tolist()), dtype=np.int64)
        self.work.epoch[nodes] = epochs
        self.work.touch(nodes, Urgency.NEWS)
        self.sight.forget_all(nodes, now)

    def remove(self, nodes: Indices) -> None:
        """Nodes are gone. What is under way for them is not waited for."""
        self._release(nodes)
        self.work.reset(nodes)
        self.elsewhere = {
            key: one._replace(nodes=np.setdiff1d(one.nodes, nodes)) for key, one in self.elsewhere.items()
        }

    def set_goal(self, variable: str, nodes: Indices, goals: Sequence[tuple[str, ...]], codes: Indices) -> None:
        """The owners want ``goals[code]`` of each node (an empty tuple: nothing)."""
        column = self.table.columns[variable]
        mine = np.fromiter((column.goal_code(values) for values in goals), dtype=np.int32, count=len(goals))
        wanted = mine[codes]
        changed = nodes[column.goal[nodes] != wanted]
        column.goal[nodes] = wanted
        self.forgive(changed)
        self.work.was_ready[changed] = False
        self.work.touch(changed, Urgency.WISH)

    def set_brakes(self, nodes: Indices, *, held: npt.NDArray[np.bool_], frozen: npt.NDArray[np.bool_]) -> None:
        """Which nodes a person holds or has frozen."""
        changed = nodes[(self.work.held[nodes] != held) | (self.work.frozen[nodes] != frozen)]
        self.work.held[nodes] = held
        self.work.frozen[nodes] = frozen
        self.work.touch(changed, Urgency.WISH)

    def forgive(self, nodes: Indices) -> None:
        """Forget failures, back-off and faults: the owners want something new, or a person says to try again."""
        work = self.work
        work.failures[nodes] = work.relapses[nodes] = 0
        work.not_before[nodes] = 0
        work.refused_by[nodes] = -1
        work.fault[nodes] = False
        work.touch(nodes, Urgency.WISH)
        for node in nodes.tolist() if work.reasons else ():
            work.reasons.pop(node, None)

    def retry(self, nodes: Indices) -> None:
        """A person says that it works now: forgive the nodes, and the mutations that they wait for."""
        for number in np.unique(self.work.next[nodes]).tolist():
            if number >= 0:
                self.breakers[number].reset()
        self.forgive(nodes)

    def lead(self, shard: int, epoch: int, now: float) -> None:
        """From now on we lead ``shard`` with this epoch; 0: somebody else does."""
        self.epochs[shard] = epoch
        if not epoch:
            del self.epochs[shard]
        nodes = np.flatnonzero(self.work.alive & (self.work.shard == shard))
        self._abandon(nodes, now)
        self.work.epoch[nodes] = epoch
        if epoch:
            self.sight.forget_all(nodes, now)
            self.work.touch(nodes, Urgency.NEWS)
        else:
            # What the new leader does not contradict is as it was last recorded.
            for column in self.table.columns.values():
                column.fact[nodes] = column.last[nodes]

    def resume(self, mutation: str, nodes: Indices, now: float) -> int:
        """Another controller, or we before a restart, began ``mutation`` and may have done it: wait and see.

        Returns the generation under which the end is reported.
        """
        number = self._numbers[mutation]
        nodes = nodes[(self.work.epoch[nodes] > 0) & self.work.alive[nodes]]
        # A node does one thing at a time: what was resumed before, from an older record, must have ended.
        self._end(nodes[self.work.phase[nodes] >= Phase.ACTING])
        generation = self._begin(number, nodes, now)
        self.work.phase[nodes] = Phase.SETTLING
        self.work.start_fact[nodes] = 0  # what it started from is not known
        self.work.poll[nodes] = self.settings.first_poll
        if self.mutations[number].idempotent:
            self.work.repeat_at[nodes] = now + self.settings.repeat_unknown
        if len(nodes):
            self._resumed.add(generation)
        else:
            self._settled.append(generation)
        return generation

    def mirror(self, variable: str, value: str, nodes: Indices, now: float) -> None:
        """Another controller saw a fact, or says what befell the nodes. Nodes that we lead are left alone."""
        nodes = nodes[(self.work.epoch[nodes] == 0) & self.work.alive[nodes]]
        if variable == EVENT:
            fault = value.startswith(FAULT)
            self.work.fault[nodes] = fault
            if fault:
                self.work.reasons.update(dict.fromkeys(nodes.tolist(), value.removeprefix(FAULT)))
        elif variable in self.table.columns:
            column = self.table.columns[variable]
            column.fact[nodes] = column.last[nodes] = column.word_code(value)
            column.seen[nodes] = now
        self.work.touch(nodes, Urgency.ROUTINE)

    # ---- the step ----

    def step(self, now: float, inputs: Sequence[Input] = ()) -> Effects:
        """Take ``inputs`` in and say what to do."""
        asks: list[Ask] = []
        acts: list[Act] = []
        for item in inputs:
            match item:
                case Seen():
                    self.sight.seen(now, item)
                case Told(nodes, columns, source):
                    self.sight.believe(nodes, columns, source, now)
                case Done(generation, outcomes, detail):
                    self._done(generation, outcomes, detail, now)
                case Answered(ask, refusals):
                    self._answered(ask, refusals, now, acts)
        self.sight.age(now)
        self._settle(now)
        self._decide(now)
        self._start(now, asks, acts)
        work = self.work
        urgent = np.flatnonzero((work.phase == Phase.SETTLING) | (work.wait == Wait.LOOKING))
        looks = self.sight.looks(now, urgent)
        changes, self.sight.changes = self.sight.changes, []
        settled, self._settled = self._settled, []
        abandoned = list(self._abandoned)
        return Effects(looks, asks, acts, changes, settled, abandoned)

    def next_wakeup(self, now: float) -> float:
        """When to step again if no input comes before."""
        work = self.work
        ours = work.alive & (work.epoch > 0)
        idle = ours & (work.phase == Phase.IDLE)
        soonest = self.sight.next_wakeup(now)
        if idle.any():
            soonest = min(soonest, float(work.due[idle].min()))
            wanting = idle & (work.kind == Kind.ACT)
            if wanting.any():
                waits = work.not_before[wanting]
                later = waits[waits > now]
                if len(later):
                    soonest = min(soonest, float(later.min()))
                for number in np.unique(work.wait_on[wanting & (work.wait == Wait.BUDGET)]).tolist():
                    soonest = min(soonest, self.budgets.next_room(number, now))
                if (work.wait[wanting] == Wait.STOPPED).any():
                    soonest = min(soonest, *(b.probes_at for b in self.breakers if b.stopped_since is not None))
        settling = ours & (work.phase == Phase.SETTLING)
        if settling.any():
            soonest = min(soonest, float(np.minimum(work.deadline, work.repeat_at)[settling].min()))
        return max(soonest, now)

    def may_begin(self, generation: int, nodes: Indices) -> npt.NDArray[np.bool_]:
        """The last look before a driver is called: is the act still ours to do, and has nobody put a brake on?"""
        work = self.work
        mine = (work.generation[nodes] == generation) & (work.epoch[nodes] > 0)
        allowed: npt.NDArray[np.bool_] = mine & ~work.held[nodes] & ~work.frozen[nodes]
        return allowed

    # ---- ends ----

    def _done(self, generation: int, outcomes: Outcomes | None, detail: str, now: float) -> None:
        work = self.work
        sent = self._acting.pop(generation, None)
        if sent is None:
            return
        untouched = outcomes is None or bool(np.isin(outcomes.codes, (Outcome.FENCED, Outcome.WITHHELD)).all())
        if self._abandoned.pop(generation, None) is not None and untouched:
            self._settled.append(generation)  # nobody was told anything: there is nothing to be ended
        # Outcomes are aligned with the nodes that were sent; some of those may have been taken from us meanwhile.
        position = np.flatnonzero((work.generation[sent] == generation) & (work.phase[sent] == Phase.ACTING))
        nodes = sent[position]
        if not len(nodes):
            return
        work.acted_at[nodes] = now
        if outcomes is None:
            self._end(nodes)
            self._wait_after_failure(nodes, detail or "not begun", now)
            return
        number = int(work.mutation[nodes[0]])
        codes = outcomes.codes[position]
        reasons = (
            {int(nodes[i]): outcomes.reasons.get(int(p), "") for i, p in enumerate(position)}
            if outcomes.reasons
            else {}
        )
        waiting = nodes[(codes == Outcome.DONE) | (codes == Outcome.UNKNOWN)]
        work.phase[waiting] = Phase.SETTLING
        work.poll[waiting] = self.settings.first_poll
        self.sight.poll(waiting, self.mutations[number].variable, np.full(len(waiting), now))
        unsure = nodes[codes == Outcome.UNKNOWN]
        if self.mutations[number].idempotent:
            work.repeat_at[waiting] = now + self.settings.repeat_every
            work.repeat_at[unsure] = now + self.settings.repeat_unknown
        for node in unsure.tolist():
            work.reasons[node] = f"{self.mutations[number].name}: no answer: {reasons.get(node) or 'outcome unknown'}"
        failed = nodes[codes == Outcome.FAILED]
        self._fail(number, failed, now, reasons, "the device refused")
        self._end(nodes[codes == Outcome.WITHHELD])
        # Somebody newer may lead; if so we are about to learn it. If not, this goes on after a while.
        fenced = nodes[codes == Outcome.FENCED]
        self._end(fenced)
        self._wait_after_failure(fenced, f"{self.mutations[number].name} was fenced off", now)

    def _settle(self, now: float) -> None:
        work = self.work
        settling = np.flatnonzero(work.phase == Phase.SETTLING)
        if not len(settling):
            return
        numbers = work.mutation[settling]
        for number in np.unique(numbers).tolist():
            nodes = settling[numbers == number]
            mutation = self.mutations[number]
            column = self.table.columns[mutation.variable]
            symbols = (UNKNOWN, *column.variable.symbols)
            reached = column.symbols(nodes) == symbols.index(mutation.to)
            fact = column.fact[nodes]
            moved = (fact != 0) & (work.start_fact[nodes] != 0) & (fact != work.start_fact[nodes])
            if column.variable.open:
                reached |= moved  # the goal may have moved on meanwhile; the step itself has ended
            self._succeed(number, nodes[reached], now)
            self._end(nodes[~reached & (work.repeat_at[nodes] <= now)])
            under_way = work.phase[nodes] == Phase.SETTLING
            astray = moved & ~reached & under_way
            overdue = ~reached & ~astray & under_way & (work.deadline[nodes] <= now)
            resumed = np.isin(work.generation[nodes], list(self._resumed))
            self._never_begun(number, nodes[overdue & resumed], now)
            overdue &= ~resumed
            if astray.any():
                said = {int(n): f"{mutation.variable} went to {column.words[column.fact[n]]}" for n in nodes[astray]}
                self._fail(number, nodes[astray], now, said, "")
            if overdue.any():
                said = {
                    int(n): f"accepted, but {mutation.variable} is still {column.words[column.fact[n]]}"
                    f" after {mutation.timeout:g} s"
                    for n in nodes[overdue]
                }
                self._fail(number, nodes[overdue], now, said, "")

    def _succeed(self, number: int, nodes: Indices, now: float) -> None:
        if not len(nodes):
            return
        self._end(nodes)
        self.work.failures[nodes] = 0
        for node in nodes.tolist() if self.work.reasons else ():
            self.work.reasons.pop(node, None)
        self.breakers[number].record(now, len(nodes), 0)
        self.work.touch(nodes, Urgency.NEWS)

    def _never_begun(self, number: int, nodes: Indices, now: float) -> None:
        """What was written down before a crash has not shown in all its time: look, and do it now. Nobody failed."""
        if not len(nodes):
            return
        mutation = self.mutations[number]
        self._end(nodes)
        self._disbelieve(number, nodes, now)
        self.work.touch(nodes, Urgency.NEWS)
        self._event(nodes, f"{mutation.name}, begun before a restart, did not show in {mutation.timeout:g} s")

    def _disbelieve(self, number: int, nodes: Indices, now: float) -> None:
        """Believe what the mutation says to believe when it went wrong."""
        if self.mutations[number].on_failure == "unknown":
            self.sight.forget(nodes, (self.mutations[number].variable, *self._touched[number]))
            self.sight.look_soon(nodes, None, now)

    def _fail(self, number: int, nodes: Indices, now: float, said: dict[int, str], default: str) -> None:
        """The step failed: believe what the mutation says to believe, wait, and fault after too many."""
        if not len(nodes):
            return
        mutation = self.mutations[number]
        self._end(nodes)
        self._disbelieve(number, nodes, now)
        self.breakers[number].record(now, 0, len(nodes))
        texts: dict[str, list[int]] = {}
        for node in nodes.tolist():
            text = f"{mutation.name} failed: {said.get(node) or default}"
            self.work.reasons[node] = text
            texts.setdefault(text, []).append(node)
        for text, members in texts.items():
            self._event(np.array(members, dtype=np.int64), text)
        self.work.failures[nodes] += 1
        exhausted = self.work.failures[nodes] >= self.settings.failures_to_fault
        self._wait_after_failure(nodes[~exhausted], None, now)
        self._fault(nodes[exhausted], now)

    def _wait_after_failure(self, nodes: Indices, reason: str | None, now: float) -> None:
        work = self.work
        work.refused_by[nodes] = -1
        doubling = np.maximum(work.failures[nodes], work.relapses[nodes]) - 1
        wait = np.minimum(self.settings.backoff * 2.0 ** np.clip(doubling, 0, 30), self.settings.longest_backoff)
        work.not_before[nodes] = now + wait * self._random.uniform(0.5, 1.0, len(nodes))
        work.touch(nodes, Urgency.NEWS)
        if reason is not None:
            work.reasons.update(dict.fromkeys(nodes.tolist(), reason))

    def _fault(self, nodes: Indices, now: float) -> None:
        """Stop in a named fault state. Tried once more after a long while, or when a person or a new desire says so."""
        if not len(nodes):
            return
        work = self.work
        work.fault[nodes] = True
        retry = self.settings.fault_retry
        work.not_before[nodes] = now + retry * self._random.uniform(0.9, 1.1, len(nodes)) if retry else NEVER
        work.touch(nodes, Urgency.NEWS)
        for node in nodes.tolist():
            self._event(np.array([node], dtype=np.int64), f"{FAULT}{work.reasons.get(node, 'failed too often')}")

    def _end(self, nodes: Indices) -> None:
        """The nodes' mutation has ended, one way or another."""
        if not len(nodes):
            return
        work = self.work
        for generation, count in zip(*np.unique(work.generation[nodes], return_counts=True), strict=True):
            left = self._open.get(int(generation), 0) - int(count)
            if left > 0:
                self._open[int(generation)] = left
            elif self._open.pop(int(generation), None) is not None:
                self._settled.append(int(generation))
                self._resumed.discard(int(generation))
        work.phase[nodes] = Phase.IDLE
        work.mutation[nodes] = -1
        work.generation[nodes] = 0
        work.deadline[nodes] = NEVER
        work.touch(nodes, Urgency.NEWS)

    def _release(self, nodes: Indices) -> None:
        """Nodes leave our hands: what is under way for them is not ours to end."""
        under_way = nodes[self.work.phase[nodes] >= Phase.ACTING]
        self._end(under_way)
        self.work.phase[nodes] = Phase.IDLE
        self.work.mutation[nodes] = -1

    def _abandon(self, nodes: Indices, now: float) -> None:
        """The lead of nodes is lost: what is under way goes on, for whoever leads next to end. Its intents stay."""
        work = self.work
        under_way = nodes[work.phase[nodes] >= Phase.ACTING]
        for generation in np.unique(work.generation[under_way]).tolist():
            members = under_way[work.generation[under_way] == generation]
            self._open.pop(generation, None)
            self._abandoned[generation] = members
            mutation = self.mutations[work.mutation[members[0]]].name
            self.elsewhere[f"generation {generation}"] = Elsewhere(mutation, members, now)
        work.phase[nodes] = Phase.IDLE
        work.mutation[nodes] = -1
        work.generation[nodes] = 0
        work.deadline[nodes] = NEVER

    def _event(self, nodes: Indices, text: str) -> None:
        self.sight.changes.append(Change(EVENT, "", text, "engine", "", nodes))

    # ---- decisions ----

    def _decide(self, now: float) -> None:
        work = self.work
        # Also for nodes that others lead: only what we start is limited to our own.
        nodes = np.flatnonzero(work.alive & (work.phase == Phase.IDLE) & (work.dirty | (work.due <= now)))
        if not len(nodes):
            return
        inverse, rows = self.table.classes(nodes)
        ids = np.fromiter((self.decider.of_class(row) for row in rows), dtype=np.int32, count=len(rows))
        chosen = [self.decider.decisions[number] for number in ids.tolist()]
        kinds = np.fromiter((decision.kind for decision in chosen), dtype=np.int8, count=len(chosen))
        steps = np.fromiter(
            (self._numbers[d.mutation] if d.mutation else -1 for d in chosen), dtype=np.int32, count=len(chosen)
        )
        work.decision[nodes] = ids[inverse]
        kind = kinds[inverse]
        changed_mind = (work.kind[nodes] != kind) | (work.next[nodes] != steps[inverse])
        work.waiting_since[nodes[changed_mind]] = now
        work.kind[nodes] = kind
        work.next[nodes] = steps[inverse]
        work.dirty[nodes] = False
        work.due[nodes] = now + self.settings.resync * self._random.uniform(0.5, 1.0, len(nodes))
        work.wait[nodes] = Wait.NOTHING
        work.wait_on[nodes] = -1
        self._decided_ready(nodes[(kind == Kind.READY) | (kind == Kind.UNMANAGED)], now)
        self._decided_act(nodes[kind == Kind.ACT], now)
        work.wait[nodes[kind == Kind.STUCK]] = Wait.STUCK
        work.wait[nodes[kind == Kind.LOOK]] = Wait.LOOKING
        for number in np.unique(inverse[kind == Kind.LOOK]).tolist():
            self.sight.look_soon(nodes[inverse == number], chosen[number].observers, now)

    def _decided_ready(self, nodes: Indices, now: float) -> None:
        work = self.work
        work.urgency[nodes] = Urgency.ROUTINE
        work.ready_since[nodes] = np.where(work.was_ready[nodes], work.ready_since[nodes], now)
        work.was_ready[nodes] = True
        well = nodes[work.fault[nodes] & (work.epoch[nodes] > 0)]
        if len(well):
            self._event(well, "fault cleared: at its goal")
            self.forgive(well)
            work.dirty[well] = False
        stable = nodes[now - work.ready_since[nodes] > self.settings.stable_after]
        work.relapses[stable] = 0

    def _decided_act(self, nodes: Indices, now: float) -> None:
        """Nodes that are to be changed; those that were at their goal a moment ago have relapsed."""
        work = self.work
        fallen = nodes[work.was_ready[nodes] & (work.epoch[nodes] > 0)]
        if not len(fallen):
            return
        work.was_ready[fallen] = False
        shaky = fallen[now - work.ready_since[fallen] <= self.settings.stable_after]
        work.relapses[fallen] = np.where(np.isin(fallen, shaky), work.relapses[fallen] + 1, 1)
        again = fallen[work.relapses[fallen] > 1]
        lost = again[work.relapses[again] > self.settings.relapses_to_fault]
        self._wait_after_failure(again, None, now)
        work.dirty[again] = False
        for node in lost.tolist():
            work.reasons[node] = f"flapping: fell from its goal {int(work.relapses[node])} times"
        self._fault(lost, now)
        work.dirty[lost] = False

    # ---- starts ----

    def _start(self, now: float, asks: list[Ask], acts: list[Act]) -> None:
        work = self.work
        wanting = np.flatnonzero(work.alive & (work.epoch > 0) & (work.phase == Phase.IDLE) & (work.kind == Kind.ACT))
        if not len(wanting):
            return
        early = work.not_before[wanting] > now
        late = wanting[early]
        work.wait[late] = np.where(work.refused_by[late] >= 0, Wait.GUARD, Wait.BACKOFF)
        work.wait[late[work.fault[late]]] = Wait.FAULT
        work.wait[wanting[work.frozen[wanting]]] = Wait.FROZEN
        work.wait[wanting[work.held[wanting]]] = Wait.HELD
        able = wanting[~early & ~work.frozen[wanting] & ~work.held[wanting]]
        if not len(able):
            return
        self._second_chance(able[work.fault[able]])
        away = work.alive & (work.kind != Kind.READY) & (work.kind != Kind.UNMANAGED)
        demand = Demand(self._busy(now), np.flatnonzero(away), self._standing)
        for number in np.unique(work.next[able]).tolist():
            nodes = able[work.next[able] == number]
            nodes = nodes[np.lexsort((work.waiting_since[nodes], work.urgency[nodes]))]
            allowance = self.breakers[number].allowance(now)
            if allowance is not None:
                work.wait[nodes[allowance:]] = Wait.STOPPED
                nodes = nodes[:allowance]
            mutation = self.mutations[number]
            nodes = self._admit(mutation, nodes, now, demand)
            if not len(nodes):
                continue
            demand.busy[mutation.name] = np.r_[demand.busy.get(mutation.name, nodes[:0]), nodes]
            self.breakers[number].started(len(nodes))
            work.wait[nodes] = Wait.NOTHING
            if mutation.guards:
                self._ask(number, nodes, now, asks)
            else:
                self._launch(number, nodes, now, acts)

    def _admit(self, mutation: Mutation, nodes: Indices, now: float, demand: Demand) -> Indices:
        admitted, verdict = self.budgets.admit(mutation.name, nodes, now, demand)
        refused = nodes[verdict >= 0]
        self.work.wait[refused] = Wait.BUDGET
        self.work.wait_on[refused] = verdict[verdict >= 0]
        return admitted

    def _standing(self, mutation: str) -> Indices:
        """The nodes on which the change is in force, or may be: what is not known to be otherwise counts."""
        declared = self.model.mutations[mutation]
        column = self.table.columns[declared.variable]
        in_force = (column.fact == column.word_code(declared.to)) | (column.fact == 0)
        return np.flatnonzero(self.work.alive & in_force)

    def _second_chance(self, nodes: Indices) -> None:
        """Faulted nodes whose time has come: one more try, and a single failure faults them again."""
        if len(nodes):
            self.work.fault[nodes] = False
            self.work.failures[nodes] = self.settings.failures_to_fault - 1
            self._event(nodes, "trying again after a fault")

    def _busy(self, now: float) -> dict[str, Indices]:
        under_way = np.flatnonzero(self.work.phase != Phase.IDLE)
        numbers = self.work.mutation[under_way]
        busy = {self.mutations[n].name: under_way[numbers == n] for n in np.unique(numbers).tolist() if n >= 0}
        for one in self.elsewhere.values():
            # Long after it must have shown, the facts tell more than the intent.
            if now < one.heard + 2 * self.model.mutations[one.mutation].timeout:
                busy[one.mutation] = np.union1d(busy.get(one.mutation, one.nodes), one.nodes)
        return busy

    def _ask(self, number: int, nodes: Indices, now: float, asks: list[Ask]) -> None:
        mutation = self.mutations[number]
        question = _Question(number, nodes, len(mutation.guards))
        self.work.phase[nodes] = Phase.ASKING
        self.work.mutation[nodes] = number
        self.work.since[nodes] = now
        for guard in mutation.guards:
            self._questions[self._next_question] = (question, self.guards.index(guard))
            asks.append(Ask(self._next_question, guard, mutation.name, nodes))
            self._next_question += 1

    def ask_again(self) -> None:
        """Whoever is waiting for a guard's answer lines up anew: the budgets that let it through are others now."""
        asking = np.flatnonzero(self.work.phase == Phase.ASKING)
        self.work.phase[asking] = Phase.IDLE
        self.work.mutation[asking] = -1
        self.work.touch(asking, Urgency.NEWS)

    def _answered(self, ask: int, refusals: Sequence[str], now: float, acts: list[Act]) -> None:
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
        work = self.work
        mine = (work.phase[question.nodes] == Phase.ASKING) & (work.mutation[question.nodes] == question.mutation)
        refused = np.zeros(len(question.nodes), dtype=bool)
        for position, (number, text) in question.refusals.items():
            if mine[position]:
                refused[position] = True
                node = int(question.nodes[position])
                work.refused_by[node] = number
                work.reasons[node] = f"{self.guards[number]} says no: {text}"
                work.not_before[node] = now + self.model.guards[self.guards[number]].ask_again_after
        asked = question.nodes[mine]
        work.phase[asked] = Phase.IDLE
        work.mutation[asked] = -1
        work.refused_by[question.nodes[mine & ~refused]] = -1
        work.wait[question.nodes[refused]] = Wait.GUARD
        # What the answer was asked for must still be what is wanted.
        good = question.nodes[mine & ~refused]
        braked = work.held[good] | work.frozen[good] | work.dirty[good]
        self._launch(question.mutation, good[~braked], now, acts)

    def _launch(self, number: int, nodes: Indices, now: float, acts: list[Act]) -> None:
        mutation = self.mutations[number]
        # One shard an act: its intent is ended by whoever leads that shard then.
        for chunk in self._chunks(nodes, mutation.batch):
            generation = self._begin(number, chunk, now)
            self._acting[generation] = chunk
            self.work.phase[chunk] = Phase.ACTING
            self.sight.forget(chunk, self._touched[number])
            urgency = int(self.work.urgency[chunk].min())
            acts.append(Act(generation, mutation.name, chunk, self.work.epoch[chunk].copy(), urgency))
            self.work.urgency[chunk] = Urgency.ROUTINE

    def _chunks(self, nodes: Indices, most: int) -> Iterator[Indices]:
        shards = self.work.shard[nodes]
        for shard in np.unique(shards).tolist():
            members = nodes[shards == shard]
            for start in range(0, len(members), most):
                yield np.sort(members[start : start + most])

    def _begin(self, number: int, nodes: Indices, now: float) -> int:
        generation = self._next_generation
        self._next_generation += 1
        work = self.work
        work.mutation[nodes] = number
        work.generation[nodes] = generation
        work.since[nodes] = work.acted_at[nodes] = now
        work.deadline[nodes] = now + self.mutations[number].timeout
        work.repeat_at[nodes] = NEVER
        work.start_fact[nodes] = self.table.columns[self.mutations[number].variable].fact[nodes]
        if len(nodes):
            self._open[generation] = len(nodes)
        return generation
