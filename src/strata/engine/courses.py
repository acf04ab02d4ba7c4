"""The course of a mutation on its nodes: how it begins, what comes of it, how it ends.

    launch → ACTING → done → SETTLING → the fact shows it        → succeeded
                  │              ├──── it went elsewhere, cannot come, or not in time → failed → back-off → fault
                  └── refused ───┘

Knows nothing of why a mutation is started (``strata.engine.reconciler``) or whether it may be
(``strata.engine.starts``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.driver import Outcomes
from strata.core.model import UNKNOWN, Model, Mutation
from strata.core.state import Outcome
from strata.engine.breaker import Breaker
from strata.engine.effects import Act, Change
from strata.engine.prospects import Prospects
from strata.engine.settings import EngineSettings
from strata.engine.sight import Sight
from strata.engine.table import NEVER, FleetTable
from strata.engine.work import Phase, Urgency, Work

EVENT = "event"
"""The name under which history keeps what is not a fact: failures and faults."""

FAULT = "fault: "
"""How the event of going into a fault state begins."""

_UNTOUCHED = (Outcome.FENCED, Outcome.WITHHELD, Outcome.UNTRIED)


class Elsewhere(NamedTuple):
    """Something under way that is not ours to end; ``heard`` is when we learnt of it."""

    mutation: str
    nodes: Indices
    heard: float


class Courses:
    """All mutations under way, by *generation*: the number of an act."""

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        table: FleetTable,
        work: Work,
        sight: Sight,
        random: np.random.Generator,
    ) -> None:
        self.settings = settings
        self.table = table
        self.work = work
        self.sight = sight
        self._random = random
        self.mutations: list[Mutation] = list(model.mutations.values())
        """By number, as ``Work.mutation`` and ``Work.next`` hold them."""
        self.numbers = {mutation.name: number for number, mutation in enumerate(self.mutations)}
        self.breakers = [Breaker(settings) for _ in self.mutations]
        self._prospects = Prospects(model, table, work, settings.hopeless_after)
        self._touched = [tuple(v for v in model.effects(m) if v != m.variable) for m in self.mutations]
        self._next_generation = 1
        self._open: dict[int, int] = {}  # generation → nodes that have not ended
        self._acting: dict[int, Indices] = {}  # generation → nodes that a driver has, in their order
        self._resumed: set[int] = set()
        self._left: set[int] = set()  # generations that a driver has and whose lead we lost
        self._settled: list[int] = []
        self._abandoned: list[int] = []
        self.elsewhere: dict[str, Elsewhere] = {}
        """What others have under way, or we had before we lost the lead, by the key of its intent."""

    def take_settled(self) -> list[int]:
        """The generations that have ended since this was last asked."""
        settled, self._settled = self._settled, []
        return settled

    def take_abandoned(self) -> list[int]:
        """The generations that were abandoned since this was last asked."""
        abandoned, self._abandoned = self._abandoned, []
        return abandoned

    def launch(self, number: int, nodes: Indices, now: float, acts: list[Act]) -> None:
        """Start a mutation on nodes."""
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

    def resume(self, mutation: str, nodes: Indices, now: float) -> int:
        """Another controller, or we before a restart, began ``mutation`` and may have done it: wait and see.

        Returns the generation under which the end is reported.
        """
        number = self.numbers[mutation]
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

    def done(self, generation: int, outcomes: Outcomes | None, detail: str, now: float) -> None:
        """A driver has said what came of an act; None: it was never begun."""
        work = self.work
        sent = self._acting.pop(generation, None)
        if sent is None:
            return
        untouched = outcomes is None or bool(np.isin(outcomes.codes, _UNTOUCHED).all())
        if generation in self._left and untouched:
            self._settled.append(generation)  # nobody was told anything: there is nothing to be ended
        self._left.discard(generation)
        # Outcomes are aligned with the nodes that were sent; some of those may have been taken from us meanwhile.
        position = np.flatnonzero((work.generation[sent] == generation) & (work.phase[sent] == Phase.ACTING))
        nodes = sent[position]
        if not len(nodes):
            return
        work.acted_at[nodes] = now
        if outcomes is None:
            self._end(nodes)
            self.wait_after_failure(nodes, detail or "not begun", now)
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
        self._leave_untried(number, nodes[codes == Outcome.UNTRIED], now, reasons)
        self._end(nodes[codes == Outcome.WITHHELD])
        # Somebody newer may lead; if so we are about to learn it. If not, this goes on after a while.
        fenced = nodes[codes == Outcome.FENCED]
        self._end(fenced)
        self.wait_after_failure(fenced, f"{self.mutations[number].name} was fenced off", now)

    def settle(self, now: float) -> None:
        """See of which mutations the facts now show the end, and which are overdue."""
        work = self.work
        settling = np.flatnonzero(work.phase == Phase.SETTLING)
        if not len(settling):
            return
        numbers = work.mutation[settling]
        for number in np.unique(numbers).tolist():
            nodes = settling[numbers == number]
            mutation = self.mutations[number]
            column = self.table.columns[mutation.variable]
            reached = self._reached(number, nodes)
            fact = column.fact[nodes]
            moved = (fact != 0) & (work.start_fact[nodes] != 0) & (fact != work.start_fact[nodes])
            if column.variable.open:
                reached |= moved  # the goal may have moved on meanwhile; the step itself has ended
            self._succeed(number, nodes[reached], now)
            self._end(nodes[~reached & (work.repeat_at[nodes] <= now)])
            under_way = work.phase[nodes] == Phase.SETTLING
            astray = moved & ~reached & under_way
            waiting = ~reached & ~astray & under_way
            self._give_up(number, nodes[waiting], now)
            overdue = waiting & (work.deadline[nodes] <= now)  # what was given up has none
            resumed = np.isin(work.generation[nodes], list(self._resumed))
            self._never_begun(number, nodes[overdue & resumed], now, f"did not show in {mutation.timeout:g} s")
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

    def release(self, nodes: Indices) -> None:
        """Nodes leave our hands: what is under way for them is not ours to end."""
        under_way = nodes[self.work.phase[nodes] >= Phase.ACTING]
        self._end(under_way)
        self.work.phase[nodes] = Phase.IDLE
        self.work.mutation[nodes] = -1

    def abandon(self, nodes: Indices, now: float) -> None:
        """The lead of nodes is lost: what is under way goes on, for whoever leads next to end. Its intents stay."""
        work = self.work
        under_way = nodes[work.phase[nodes] >= Phase.ACTING]
        for generation in np.unique(work.generation[under_way]).tolist():
            members = under_way[work.generation[under_way] == generation]
            self._open.pop(generation, None)
            self._abandoned.append(generation)
            if generation in self._acting:
                self._left.add(generation)
            mutation = self.mutations[work.mutation[members[0]]].name
            self.elsewhere[f"generation {generation}"] = Elsewhere(mutation, members, now)
        work.phase[nodes] = Phase.IDLE
        work.mutation[nodes] = -1
        work.generation[nodes] = 0
        work.deadline[nodes] = NEVER

    def wait_after_failure(self, nodes: Indices, reason: str | None, now: float) -> None:
        """Back off: longer with each failure or relapse, with jitter."""
        work = self.work
        work.refused_by[nodes] = -1
        doubling = np.maximum(work.failures[nodes], work.relapses[nodes]) - 1
        wait = np.minimum(self.settings.backoff * 2.0 ** np.clip(doubling, 0, 30), self.settings.longest_backoff)
        work.not_before[nodes] = now + wait * self._random.uniform(0.5, 1.0, len(nodes))
        work.touch(nodes, Urgency.NEWS)
        if reason is not None:
            work.reasons.update(dict.fromkeys(nodes.tolist(), reason))

    def forgive_failures(self, nodes: Indices) -> None:
        """What failed has been done, or need not be."""
        self.work.failures[nodes] = 0
        self.work.failed[nodes] = -1

    def overcome(self, nodes: Indices) -> None:
        """Where what failed has come about all the same, by itself or by somebody's hand, nothing is in the way."""
        work = self.work
        nodes = nodes[work.failed[nodes] >= 0]
        for number in np.unique(work.failed[nodes]).tolist():
            done = nodes[work.failed[nodes] == number]
            done = done[self._reached(number, done)]
            faulted = done[work.fault[done]]
            if len(faulted):
                mutation = self.mutations[number]
                self.event(faulted, f"fault cleared: {mutation.variable} is {mutation.to}")
            self.forgive_failures(done)
            work.fault[done] = False
            work.not_before[done] = 0
            work.refused_by[done] = -1
            for node in done.tolist():
                work.reasons.pop(node, None)

    def fault(self, nodes: Indices, now: float) -> None:
        """Stop in a named fault state. Tried once more after a long while, or when a person or a new desire says so."""
        if not len(nodes):
            return
        work = self.work
        work.fault[nodes] = True
        retry = self.settings.fault_retry
        work.not_before[nodes] = now + retry * self._random.uniform(0.9, 1.1, len(nodes)) if retry else NEVER
        work.touch(nodes, Urgency.NEWS)
        for node in nodes.tolist():
            self.event(np.array([node], dtype=np.int64), f"{FAULT}{work.reasons.get(node, 'failed too often')}")

    def event(self, nodes: Indices, text: str) -> None:
        """Note for the history what befell nodes."""
        self.sight.changes.append(Change(EVENT, "", text, "engine", "", nodes))

    def _reached(self, number: int, nodes: Indices) -> npt.NDArray[np.bool_]:
        """Of which nodes the fact shows what the mutation is for."""
        mutation = self.mutations[number]
        column = self.table.columns[mutation.variable]
        reached: npt.NDArray[np.bool_] = column.symbols(nodes) == (UNKNOWN, *column.variable.symbols).index(mutation.to)
        return reached

    def _succeed(self, number: int, nodes: Indices, now: float) -> None:
        if not len(nodes):
            return
        self._end(nodes)
        # A step on the way to the one that failed says nothing of that: switched on anew, it may fail to boot again.
        self.forgive_failures(nodes[np.isin(self.work.failed[nodes], (-1, number))])
        for node in nodes.tolist() if self.work.reasons else ():
            self.work.reasons.pop(node, None)
        self.breakers[number].succeeded(now, len(nodes))
        self.work.touch(nodes, Urgency.NEWS)

    def _give_up(self, number: int, nodes: Indices, now: float) -> None:
        """End what cannot end well any more, rather than wait for all its time."""
        hopeless = self._prospects.hopeless(number, nodes)
        if not hopeless:
            return
        mutation = self.mutations[number]
        ended = np.array(list(hopeless), dtype=np.int64)
        resumed = np.isin(self.work.generation[ended], list(self._resumed))
        for what in dict.fromkeys(hopeless.values()):
            alike = np.fromiter((said == what for said in hopeless.values()), dtype=bool, count=len(ended))
            self._never_begun(number, ended[resumed & alike], now, f"did not show: {what}")
        waited = f"while it waited for {mutation.variable} to be {mutation.to}"
        self._fail(number, ended[~resumed], now, {node: f"{what} {waited}" for node, what in hopeless.items()}, "")

    def _never_begun(self, number: int, nodes: Indices, now: float, what: str) -> None:
        """What was written down before a crash has not shown, and will not: look, and do it now. Nobody failed."""
        if not len(nodes):
            return
        self._end(nodes)
        self._disbelieve(number, nodes, now)
        self.work.touch(nodes, Urgency.NEWS)
        self.event(nodes, f"{self.mutations[number].name}, begun before a restart, {what}")

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
        self.breakers[number].failed(now, nodes.tolist())
        self._events({node: f"{mutation.name} failed: {said.get(node) or default}" for node in nodes.tolist()})
        self.work.failures[nodes] += 1
        self.work.failed[nodes] = number
        exhausted = self.work.failures[nodes] >= self.settings.failures_to_fault
        self.wait_after_failure(nodes[~exhausted], None, now)
        self.fault(nodes[exhausted], now)

    def _leave_untried(self, number: int, nodes: Indices, now: float, said: dict[int, str]) -> None:
        """What the step needs is not there. Nobody failed: it is tried again after a long while, or as soon as the
        owners want something else, by the same name or another."""
        if not len(nodes):
            return
        self._end(nodes)
        name = self.mutations[number].name
        texts = {node: f"{name} was not tried: {said.get(node) or 'no reason given'}" for node in nodes.tolist()}
        self._events({node: text for node, text in texts.items() if self.work.reasons.get(node) != text})
        if self._touched[number]:
            self.sight.look_soon(nodes, None, now)  # they were forgotten when it was about to begin
        self.work.refused_by[nodes] = -1
        self.work.not_before[nodes] = now + self.settings.longest_backoff * self._random.uniform(0.5, 1.0, len(nodes))

    def _events(self, texts: dict[int, str]) -> None:
        """Note for the history, and as the nodes' trouble, what befell each."""
        self.work.reasons.update(texts)
        alike: dict[str, list[int]] = {}
        for node, text in texts.items():
            alike.setdefault(text, []).append(node)
        for text, members in alike.items():
            self.event(np.array(members, dtype=np.int64), text)

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
        work.repeat_at[nodes] = work.hopeless_since[nodes] = NEVER
        work.start_fact[nodes] = self.table.columns[self.mutations[number].variable].fact[nodes]
        if len(nodes):
            self._open[generation] = len(nodes)
        return generation
