"""The engine: looks at the whole fleet and says what to do next.

``Engine.step(now, inputs) → Effects``. Pure: no clock, no I/O; chance comes from a seed. Level-triggered: a step asks
what each node's facts and goals call for, never what happened. It does not know how effects are carried out
(``strata.control``), only that their results come back as inputs of a later step.

The order within a step is the loop of Strata: take in what was seen, end what has ended, decide per class, start what
the brakes allow, look where eyes are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.model import Model
from strata.engine.courses import EVENT, FAULT, Courses
from strata.engine.decisions import Decider, Kind
from strata.engine.effects import Act, Answered, Ask, Done, Effects, Input, Seen, Told
from strata.engine.settings import EngineSettings
from strata.engine.sight import Sight
from strata.engine.starts import Starts
from strata.engine.table import FleetTable
from strata.engine.work import Phase, Urgency, Wait, Work


class Engine:
    """One controller's view of the fleet and what it does about it."""

    def __init__(self, model: Model, settings: EngineSettings | None = None, seed: int = 0) -> None:
        self.model = model
        self.settings = settings or EngineSettings()
        self.table = FleetTable(model)
        self.work = Work()
        self.decider = Decider(model, self.table)
        self._random = np.random.default_rng(seed)
        self.sight = Sight(model, self.settings, self.table, self.work, self._random)
        self.courses = Courses(model, self.settings, self.table, self.work, self.sight, self._random)
        self.starts = Starts(model, self.settings, self.table, self.work, self.courses)
        self.epochs: dict[int, int] = {}
        """Shards that we lead, and with which epoch."""

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
        self.courses.release(nodes)
        self.work.reset(nodes)
        self.courses.elsewhere = {
            key: one._replace(nodes=np.setdiff1d(one.nodes, nodes)) for key, one in self.courses.elsewhere.items()
        }

    def set_goal(self, variable: str, nodes: Indices, goals: Sequence[tuple[str, ...]], codes: Indices) -> None:
        """The owners want ``goals[code]`` of each node (an empty tuple: nothing)."""
        column = self.table.columns[variable]
        mine = np.fromiter((column.goal_code(values) for values in goals), dtype=np.int32, count=len(goals))
        wanted = mine[codes]
        changed = nodes[column.goal[nodes] != wanted]
        column.goal[nodes] = wanted
        self.want_anew(changed)

    def want_anew(self, nodes: Indices) -> None:
        """The owners want something else, if perhaps by the same name: a node that differs from it has not fallen."""
        self.forgive(nodes)
        self.work.was_ready[nodes] = False

    def set_brakes(self, nodes: Indices, *, held: npt.NDArray[np.bool_], frozen: npt.NDArray[np.bool_]) -> None:
        """Which nodes a person holds or has frozen."""
        changed = nodes[(self.work.held[nodes] != held) | (self.work.frozen[nodes] != frozen)]
        self.work.held[nodes] = held
        self.work.frozen[nodes] = frozen
        self.work.touch(changed, Urgency.WISH)

    def forgive(self, nodes: Indices) -> None:
        """Forget failures, back-off and faults: the owners want something new, or a person says to try again."""
        work = self.work
        self.courses.forgive_failures(nodes)
        work.relapses[nodes] = 0
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
                self.courses.breakers[number].reset()
        self.forgive(nodes)

    def lead(self, shard: int, epoch: int, now: float) -> None:
        """From now on we lead ``shard`` with this epoch; 0: somebody else does."""
        self.epochs[shard] = epoch
        if not epoch:
            del self.epochs[shard]
        nodes = np.flatnonzero(self.work.alive & (self.work.shard == shard))
        self.courses.abandon(nodes, now)
        self.work.epoch[nodes] = epoch
        if epoch:
            self.sight.forget_all(nodes, now)
            self.work.touch(nodes, Urgency.NEWS)
        else:
            # What the new leader does not contradict is as it was last recorded.
            for column in self.table.columns.values():
                column.fact[nodes] = column.last[nodes]
                column.implied[nodes] = False

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
            code = column.word_code(value)
            column.fact[nodes] = column.last[nodes] = code
            if code:
                column.before[nodes] = code
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
                    self.courses.done(generation, outcomes, detail, now)
                case Answered(ask, refusals):
                    self.starts.answered(ask, refusals, now, acts)
        self.sight.imply(now)
        self.sight.age(now)
        self.courses.settle(now)
        self._decide(now)
        self.starts.start(now, asks, acts)
        work = self.work
        urgent = np.flatnonzero((work.phase == Phase.SETTLING) | (work.wait == Wait.LOOKING))
        looks = self.sight.looks(now, urgent)
        changes, self.sight.changes = self.sight.changes, []
        return Effects(looks, asks, acts, changes, self.courses.take_settled(), self.courses.take_abandoned())

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
                    soonest = min(soonest, self.starts.budgets.next_room(number, now))
                if (work.wait[wanting] == Wait.STOPPED).any():
                    soonest = min(soonest, *(b.probes_at for b in self.courses.breakers if b.stopped_since is not None))
        settling = ours & (work.phase == Phase.SETTLING)
        if settling.any():
            soonest = min(soonest, float(np.minimum(work.deadline, work.repeat_at)[settling].min()))
        return max(soonest, now)

    def way(self, node: int) -> tuple[str, ...]:
        """The mutations from where the node was when it was last thought about to its goal."""
        number = int(self.work.decision[node]) if node < self.work.size else -1
        return self.decider.decisions[number].plan.steps if number >= 0 else ()

    def may_begin(self, generation: int, nodes: Indices) -> npt.NDArray[np.bool_]:
        """The last look before a driver is called: is the act still ours to do, and has nobody put a brake on?"""
        work = self.work
        mine = (work.generation[nodes] == generation) & (work.epoch[nodes] > 0)
        allowed: npt.NDArray[np.bool_] = mine & ~work.held[nodes] & ~work.frozen[nodes]
        return allowed

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
            (self.courses.numbers[d.mutation] if d.mutation else -1 for d in chosen), dtype=np.int32, count=len(chosen)
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
        content = (kind == Kind.READY) | (kind == Kind.UNMANAGED)
        self._decided_ready(nodes[content], now)
        self.courses.overcome(nodes[~content & (work.epoch[nodes] > 0)])
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
        self.courses.forgive_failures(nodes)
        well = nodes[work.fault[nodes] & (work.epoch[nodes] > 0)]
        if len(well):
            self.courses.event(well, "fault cleared: at its goal")
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
        self.courses.wait_after_failure(again, None, now)
        work.dirty[again] = False
        for node in lost.tolist():
            work.reasons[node] = f"flapping: fell from its goal {int(work.relapses[node])} times"
        self.courses.fault(lost, now)
        work.dirty[lost] = False
