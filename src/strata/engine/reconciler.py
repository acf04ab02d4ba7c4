"""The engine: looks at the whole fleet and says what to do next.

``Engine.step(now, inputs) → Effects``. Pure: no clock, no I/O; chance comes from a seed. Level-triggered: a step asks
what each node's facts and goals call for, never what happened. It does not know how effects are carried out
(``strata.fleet``), only that their results come back as inputs of a later step.

The order within a step is the loop of Strata: take in what was seen, end what has ended, decide per class, start what
the brakes allow, look where a fact is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices, span
from strata.core.distinct import distinct, without
from strata.core.model import Model
from strata.engine import faults
from strata.engine.admission import Admission
from strata.engine.canaries import Canaries
from strata.engine.decisions import Decider, Kind
from strata.engine.effects import Act, Answered, Ask, Done, Effects, Input, Seen, Told
from strata.engine.facts import Facts
from strata.engine.in_flight import InFlight
from strata.engine.places import Places
from strata.engine.progress import Phase, Progress, Urgency, Wait
from strata.engine.settings import EngineSettings
from strata.engine.table import FleetTable


class Engine:
    """One controller's view of the fleet and what it does about it."""

    def __init__(self, model: Model, settings: EngineSettings | None = None, seed: int = 0) -> None:
        self.model = model
        self.settings = settings or EngineSettings()
        self.table = FleetTable(model)
        self.progress = Progress()
        self.decider = Decider(model, self.table)
        self._random = np.random.default_rng(seed)
        self.facts = Facts(model, self.settings, self.table, self.progress, self._random)
        self.places = Places(model, self.table, self.progress, self.decider)
        self.in_flight = InFlight(
            model, self.settings, self.table, self.progress, self.facts, self.places, self._random
        )
        self.canaries = Canaries(model, self.table, self.progress, self.decider, self.in_flight)
        self.admission = Admission(
            model, self.settings, self.table, self.progress, self.in_flight, self.places, self.canaries
        )
        self.epochs: dict[int, int] = {}
        """Shards that we lead, and with which epoch."""

    # ---- what the fleet is ----

    def add(self, nodes: Indices, shards: npt.NDArray[np.int32], now: float) -> None:
        """Nodes came to be, at these indices."""
        if len(nodes) and int(nodes.max()) >= self.progress.size:
            self.table.grow(int(nodes.max()) + 1)
            self.progress.grow(self.table.size)
            self.facts.grow(self.table.size)
            self.places.grow(self.table.size)
        self.progress.reset(nodes)
        for column in self.table.columns.values():
            column.forget_nodes(nodes)
        self.progress.alive[nodes] = True
        self.progress.acted_at[nodes] = now
        self.progress.shard[nodes] = shards
        epochs = np.fromiter((self.epochs.get(shard, 0) for shard in shards.tolist()), dtype=np.int64)
        self.progress.epoch[nodes] = epochs
        self.progress.touch(nodes, Urgency.NEWS)
        self.facts.forget_all(nodes, now)

    def remove(self, nodes: Indices) -> None:
        """Nodes are gone. What is under way for them is not waited for."""
        self.in_flight.release(nodes)
        self.places.give_back(nodes)
        self.progress.reset(nodes)
        self.in_flight.foreign = {
            key: one._replace(nodes=without(one.nodes, nodes)) for key, one in self.in_flight.foreign.items()
        }

    def set_goal(self, variable: str, nodes: Indices, goals: Sequence[tuple[str, ...]], codes: Indices) -> None:
        """The owners want ``goals[code]`` of each node (an empty tuple: nothing)."""
        column = self.table.columns[variable]
        mine = np.fromiter((column.goal_code(values) for values in goals), dtype=np.int32, count=len(goals))
        wanted = mine[codes]
        changed = nodes[column.goal[nodes] != wanted]
        column.goal[nodes] = wanted
        self._want_anew(changed)

    def renew_goal(self, nodes: Indices, now: float) -> None:
        """What the owners want has its name still, and stands for something else since ``now``."""
        self.canaries.renewed(nodes, now)
        self._want_anew(nodes)

    def restarted(self, nodes: Indices, now: float) -> None:
        """A person had them restarted. What cannot outlive that is not believed until it is seen; and that they lost it
        is no relapse, so that they come back without waiting."""
        nodes = nodes[self.progress.epoch[nodes] > 0]
        self.progress.acted_at[nodes] = now
        lost = tuple(self.model.lost_with({"power": "off"}))
        self.facts.forget(nodes, lost)
        self.in_flight.cut_short(nodes, lost)
        self.facts.schedule_look(nodes, None, now)
        self._want_anew(nodes)
        self._decide(now)  # nobody is shown the state of before, not even until the next step

    def _want_anew(self, nodes: Indices) -> None:
        """The owners want something else: a node that differs from it has not fallen."""
        self.clear_failures(nodes)
        self.progress.was_ready[nodes] = False

    def set_brakes(self, nodes: Indices, *, held: npt.NDArray[np.bool_], frozen: npt.NDArray[np.bool_]) -> None:
        """Which nodes a person holds or has frozen."""
        changed = nodes[(self.progress.held[nodes] != held) | (self.progress.frozen[nodes] != frozen)]
        self.progress.held[nodes] = held
        self.progress.frozen[nodes] = frozen
        self.progress.touch(changed, Urgency.WISH)

    def clear_failures(self, nodes: Indices) -> None:
        """Forget failures, back-off and faults: the owners want something new, or a person says to try again."""
        progress = self.progress
        self.in_flight.clear_failures(nodes)
        self.in_flight.forget_way(nodes)
        progress.relapses[nodes] = 0
        progress.not_before[nodes] = 0
        progress.refused_by[nodes] = -1
        progress.fault[nodes] = False
        progress.touch(nodes, Urgency.WISH)
        for node in nodes.tolist() if progress.reasons else ():
            progress.reasons.pop(node, None)

    def retry(self, nodes: Indices) -> None:
        """A person says that it works now: forgive the nodes, and the mutations that they wait for."""
        for number in distinct(self.progress.next[nodes]).tolist():
            if number >= 0:
                self.in_flight.breakers[number].reset()
        self.clear_failures(nodes)

    def lead(self, shard: int, epoch: int, now: float) -> None:
        """From now on we lead ``shard`` with this epoch; 0: somebody else does."""
        self.epochs[shard] = epoch
        if not epoch:
            del self.epochs[shard]
        nodes = np.flatnonzero(self.progress.alive & (self.progress.shard == shard))
        self.in_flight.abandon(nodes, now)
        self.progress.epoch[nodes] = epoch
        self.places.give_back(nodes)
        self.progress.unsettled[nodes] = bool(epoch)
        if epoch:
            self.facts.forget_all(nodes, now)
            self.progress.touch(nodes, Urgency.NEWS)
        else:
            # What the new leader does not contradict is as it was last recorded.
            for column in self.table.columns.values():
                column.fact[nodes] = column.last[nodes]
                column.implied[nodes] = False

    def mirror(self, variable: str, value: str, nodes: Indices, now: float) -> None:
        """Another controller saw a fact, or says what befell the nodes. Nodes that we lead are left alone."""
        nodes = nodes[(self.progress.epoch[nodes] == 0) & self.progress.alive[nodes]]
        if variable == faults.EVENT:
            fault = faults.named(value)
            if fault is not None:
                self.progress.fault[nodes] = bool(fault)
            if fault:
                self.progress.reasons.update(dict.fromkeys(nodes.tolist(), fault))
        elif variable in self.table.columns:
            column = self.table.columns[variable]
            code = column.word_code(value)
            column.fact[nodes] = column.last[nodes] = code
            if code:
                column.before[nodes] = code
            column.seen[nodes] = now
        self.progress.touch(nodes, Urgency.ROUTINE)

    # ---- the step ----

    def step(self, now: float, inputs: Sequence[Input] = ()) -> Effects:
        """Take ``inputs`` in and say what to do."""
        asks: list[Ask] = []
        acts: list[Act] = []
        for seen, items in itertools.groupby(inputs, lambda item: isinstance(item, Seen)):
            if seen:
                self.facts.seen(now, cast("Iterable[Seen]", items))
                continue
            for item in items:
                match item:
                    case Told():
                        self.facts.told(now, item)
                    case Done(generation, outcomes, detail):
                        self.in_flight.done(generation, outcomes, detail, now)
                    case Answered(ask, refusals):
                        self.admission.answered(ask, refusals, now, acts)
        self.facts.imply(now)
        self.facts.age(now)
        self.in_flight.settle(now)
        self._decide(now)
        self.admission.start(now, asks, acts)
        progress = self.progress
        urgent = np.flatnonzero((progress.phase == Phase.SETTLING) | (progress.wait == Wait.LOOKING))
        looks = self.facts.looks(now, urgent)
        changes, self.facts.changes = self.facts.changes, []
        return Effects(looks, asks, acts, changes, self.in_flight.take_settled(), self.in_flight.take_abandoned())

    def next_wakeup(self, now: float) -> float:
        """When to step again if no input comes before."""
        progress = self.progress
        ours = progress.alive & (progress.epoch > 0)
        idle = ours & (progress.phase == Phase.IDLE)
        soonest = self.facts.next_wakeup(now)
        if idle.any():
            soonest = min(soonest, float(progress.due[idle].min()))
            wanting = idle & (progress.kind == Kind.ACT)
            if wanting.any():
                waits = progress.not_before[wanting]
                later = waits[waits > now]
                if len(later):
                    soonest = min(soonest, float(later.min()))
                for number in distinct(progress.wait_on[wanting & (progress.wait == Wait.BUDGET)]).tolist():
                    soonest = min(soonest, self.admission.budgets.next_room(number, now))
                if (progress.wait[wanting] == Wait.STOPPED).any():
                    soonest = min(
                        soonest, *(b.probes_at for b in self.in_flight.breakers if b.stopped_since is not None)
                    )
        settling = ours & (progress.phase == Phase.SETTLING)
        if settling.any():
            soonest = min(soonest, float(np.minimum(progress.deadline, progress.repeat_at)[settling].min()))
        return max(soonest, now)

    def way(self, node: int) -> tuple[str, ...]:
        """The mutations from where the node was when it was last thought about to its goal."""
        number = int(self.progress.decision[node]) if node < self.progress.size else -1
        return self.decider.decisions[number].plan.steps if number >= 0 else ()

    def may_begin(self, generation: int, nodes: Indices) -> npt.NDArray[np.bool_]:
        """The last look before a driver is called: is the act still ours to do, and has nobody put a brake on?"""
        progress, here = self.progress, span(nodes)
        mine = (progress.generation[here] == generation) & (progress.epoch[here] > 0)
        allowed: npt.NDArray[np.bool_] = mine & ~progress.held[here] & ~progress.frozen[here]
        return allowed

    # ---- decisions ----

    def _decide(self, now: float) -> None:
        progress = self.progress
        # Also for nodes that others lead: only what we start is limited to our own.
        nodes = np.flatnonzero(
            progress.alive & (progress.phase == Phase.IDLE) & (progress.dirty | (progress.due <= now))
        )
        if not len(nodes):
            return
        inverse, rows = self.table.classes(nodes)
        ids = np.fromiter((self.decider.of_class(row) for row in rows), dtype=np.int32, count=len(rows))
        chosen = [self.decider.decisions[number] for number in ids.tolist()]
        kinds = np.fromiter((decision.kind for decision in chosen), dtype=np.int8, count=len(chosen))
        steps = np.fromiter(
            (self.in_flight.numbers[d.mutation] if d.mutation else -1 for d in chosen),
            dtype=np.int32,
            count=len(chosen),
        )
        progress.decision[nodes] = ids[inverse]
        kind = kinds[inverse]
        changed_mind = (progress.kind[nodes] != kind) | (progress.next[nodes] != steps[inverse])
        progress.waiting_since[nodes[changed_mind]] = now
        progress.kind[nodes] = kind
        progress.next[nodes] = steps[inverse]
        progress.dirty[nodes] = False
        progress.due[nodes] = now + self.settings.resync * self._random.uniform(0.5, 1.0, len(nodes))
        progress.wait[nodes] = Wait.NOTHING
        progress.wait_on[nodes] = -1
        content = (kind == Kind.READY) | (kind == Kind.UNMANAGED)
        self._decided_ready(nodes[content], now)
        self.places.give_back(nodes[content])
        self.places.settle(nodes)
        self.in_flight.overcome(nodes[~content & (progress.epoch[nodes] > 0)])
        self.in_flight.pass_over(nodes[kind == Kind.ACT])
        self._decided_act(nodes[kind == Kind.ACT], now)
        progress.wait[nodes[kind == Kind.STUCK]] = Wait.STUCK
        progress.wait[nodes[kind == Kind.LOOK]] = Wait.LOOKING
        for number in distinct(inverse[kind == Kind.LOOK]).tolist():
            self.facts.schedule_look(nodes[inverse == number], chosen[number].observers, now)

    def _decided_ready(self, nodes: Indices, now: float) -> None:
        progress = self.progress
        progress.urgency[nodes] = Urgency.ROUTINE
        progress.ready_since[nodes] = np.where(progress.was_ready[nodes], progress.ready_since[nodes], now)
        progress.was_ready[nodes] = True
        self.in_flight.clear_failures(nodes)
        self.in_flight.forget_way(nodes)
        well = nodes[progress.fault[nodes] & (progress.epoch[nodes] > 0)]
        if len(well):
            self.in_flight.event(well, faults.over("at its goal"))
            self.clear_failures(well)
            progress.dirty[well] = False
        stable = nodes[now - progress.ready_since[nodes] > self.settings.stable_after]
        progress.relapses[stable] = 0

    def _decided_act(self, nodes: Indices, now: float) -> None:
        """Nodes that are to be changed; those that were at their goal a moment ago have relapsed."""
        progress = self.progress
        fallen = nodes[progress.was_ready[nodes] & (progress.epoch[nodes] > 0)]
        if not len(fallen):
            return
        progress.was_ready[fallen] = False
        stable = now - progress.ready_since[fallen] > self.settings.stable_after
        progress.relapses[fallen[stable]] = 0
        self.in_flight.relapse(
            fallen, now, lambda node: f"flapping: fell from its goal {int(progress.relapses[node])} times"
        )
        progress.dirty[fallen] = False
