"""The mutations in flight: how one is launched on its nodes, what comes of it, how it ends for each of them.

    launch → ACTING → done → SETTLING → the fact shows it        → succeeded
                  │              ├──── it went elsewhere, cannot come, or not in time → failed → back-off → fault
                  └── refused ───┘

Knows nothing of why a mutation is started (``strata.engine.reconciler``) or whether it may be
(``strata.engine.admission``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices, span
from strata.core.distinct import among, distinct
from strata.core.driver import Outcomes
from strata.core.model import UNKNOWN, Model, Mutation
from strata.core.state import Outcome
from strata.engine import faults
from strata.engine.backoff import BackOff
from strata.engine.breaker import Breaker
from strata.engine.effects import Act, Change
from strata.engine.facts import Facts
from strata.engine.hopeless import HopelessSteps
from strata.engine.places import Places
from strata.engine.progress import Phase, Progress, Urgency
from strata.engine.settings import EngineSettings
from strata.engine.table import NEVER, FleetTable

_UNTOUCHED = (Outcome.FENCED, Outcome.WITHHELD, Outcome.UNTRIED)


class ForeignMutation(NamedTuple):
    """Something under way that is not ours to end; ``heard`` is when we learnt of it."""

    mutation: str
    nodes: Indices
    heard: float


class InFlight:
    """All mutations under way, by *generation*: the number of an act."""

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        table: FleetTable,
        progress: Progress,
        facts: Facts,
        places: Places,
        random: np.random.Generator,
    ) -> None:
        self.settings = settings
        self.table = table
        self.progress = progress
        self.facts = facts
        self.places = places
        self._backoff = BackOff(settings, progress, random)
        self.mutations: list[Mutation] = list(model.mutations.values())
        """By number, as ``Progress.mutation`` and ``Progress.next`` hold them."""
        self.numbers = {mutation.name: number for number, mutation in enumerate(self.mutations)}
        self.breakers = [Breaker(settings) for _ in self.mutations]
        self._hopeless_steps = HopelessSteps(model, table, progress, settings.hopeless_after)
        self._touched = [tuple(v for v in model.effects(m) if v != m.variable) for m in self.mutations]
        self._next_generation = 1
        self._open: dict[int, int] = {}  # generation → nodes that have not ended
        self._acting: dict[int, Indices] = {}  # generation → nodes that a driver has, in their order
        self._resumed: set[int] = set()
        self._left: set[int] = set()  # generations that a driver has and whose lead we lost
        self._settled: list[int] = []
        self._abandoned: list[int] = []
        self.foreign: dict[str, ForeignMutation] = {}
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
        self.places.take(nodes)
        # One shard an act: its intent is ended by whoever leads that shard then.
        for chunk in self._chunks(nodes, mutation.batch):
            generation = self._begin(number, chunk, now)
            self._acting[generation] = chunk
            here = span(chunk)
            self.progress.phase[here] = Phase.ACTING
            self.facts.forget(chunk, self._touched[number])
            urgency = int(self.progress.urgency[here].min())
            acts.append(Act(generation, mutation.name, chunk, self.progress.epoch[here].copy(), urgency))
            self.progress.urgency[here] = Urgency.ROUTINE

    def resume(self, mutation: str, nodes: Indices, now: float) -> int:
        """Another controller, or we before a restart, began ``mutation`` and may have done it: wait and see.

        Returns the generation under which the end is reported.
        """
        number = self.numbers[mutation]
        nodes = nodes[(self.progress.epoch[nodes] > 0) & self.progress.alive[nodes]]
        # A node does one thing at a time: what was resumed before, from an older record, must have ended.
        self._end(nodes[self.progress.phase[nodes] >= Phase.ACTING])
        generation = self._begin(number, nodes, now)
        self.places.resume(mutation, nodes)
        self.progress.phase[nodes] = Phase.SETTLING
        self.progress.start_fact[nodes] = 0  # what it started from is not known
        self.progress.poll[nodes] = self.settings.first_poll
        if self.mutations[number].idempotent:
            self.progress.repeat_at[nodes] = now + self.settings.repeat_unknown
        if len(nodes):
            self._resumed.add(generation)
        else:
            self._settled.append(generation)
        return generation

    def done(self, generation: int, outcomes: Outcomes | None, detail: str, now: float) -> None:
        """A driver has said what came of an act; None: it was never begun."""
        progress = self.progress
        sent = self._acting.pop(generation, None)
        if sent is None:
            return
        untouched = outcomes is None or bool(among(outcomes.codes, _UNTOUCHED).all())
        if generation in self._left and untouched:
            self._settled.append(generation)  # nobody was told anything: there is nothing to be ended
        self._left.discard(generation)
        # Outcomes are aligned with the nodes that were sent; some of those may have been taken from us meanwhile.
        here = span(sent)
        position = np.flatnonzero((progress.generation[here] == generation) & (progress.phase[here] == Phase.ACTING))
        nodes = sent[position]
        if not len(nodes):
            return
        progress.acted_at[span(nodes)] = now
        if outcomes is None:
            self._end(nodes)
            self.wait_after_failure(nodes, detail or "not begun", now)
            return
        number = int(progress.mutation[nodes[0]])
        codes = outcomes.codes[position]
        reasons = (
            {int(nodes[i]): outcomes.reasons.get(int(p), "") for i, p in enumerate(position)}
            if outcomes.reasons
            else {}
        )
        waiting = nodes[(codes == Outcome.DONE) | (codes == Outcome.UNKNOWN)]
        here = span(waiting)
        progress.phase[here] = Phase.SETTLING
        progress.poll[here] = self.settings.first_poll
        self.facts.poll(waiting, self.mutations[number].variable, now)
        unsure = nodes[codes == Outcome.UNKNOWN]
        if self.mutations[number].idempotent:
            progress.repeat_at[here] = now + self.settings.repeat_every
            progress.repeat_at[unsure] = now + self.settings.repeat_unknown
        for node in unsure.tolist():
            progress.reasons[node] = (
                f"{self.mutations[number].name}: no answer: {reasons.get(node) or 'outcome unknown'}"
            )
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
        progress = self.progress
        settling = np.flatnonzero(progress.phase == Phase.SETTLING)
        if not len(settling):
            return
        numbers = progress.mutation[settling]
        for number in distinct(numbers).tolist():
            nodes = settling[numbers == number]
            mutation = self.mutations[number]
            column = self.table.columns[mutation.variable]
            reached = self._reached(number, nodes)
            fact = column.fact[nodes]
            moved = (fact != 0) & (progress.start_fact[nodes] != 0) & (fact != progress.start_fact[nodes])
            if column.variable.open:
                reached |= moved  # the goal may have moved on meanwhile; the step itself has ended
            self._succeed(number, nodes[reached], now)
            self._end(nodes[~reached & (progress.repeat_at[nodes] <= now)])
            under_way = progress.phase[nodes] == Phase.SETTLING
            astray = moved & ~reached & under_way
            waiting = ~reached & ~astray & under_way
            self._give_up(number, nodes[waiting], now)
            overdue = waiting & (progress.deadline[nodes] <= now)  # what was given up has none
            resumed = among(progress.generation[nodes], list(self._resumed))
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
        under_way = nodes[self.progress.phase[nodes] >= Phase.ACTING]
        self._end(under_way)
        self.progress.phase[nodes] = Phase.IDLE
        self.progress.mutation[nodes] = -1

    def abandon(self, nodes: Indices, now: float) -> None:
        """The lead of nodes is lost: what is under way goes on, for whoever leads next to end. Its intents stay."""
        progress = self.progress
        under_way = nodes[progress.phase[nodes] >= Phase.ACTING]
        for generation in distinct(progress.generation[under_way]).tolist():
            members = under_way[progress.generation[under_way] == generation]
            self._open.pop(generation, None)
            self._abandoned.append(generation)
            if generation in self._acting:
                self._left.add(generation)
            mutation = self.mutations[progress.mutation[members[0]]].name
            self.foreign[f"generation {generation}"] = ForeignMutation(mutation, members, now)
        progress.phase[nodes] = Phase.IDLE
        progress.mutation[nodes] = -1
        progress.generation[nodes] = 0
        progress.deadline[nodes] = NEVER

    def wait_after_failure(self, nodes: Indices, reason: str | None, now: float) -> None:
        """Leave nodes alone for a while; ``reason``: why, where nobody has said it yet."""
        if not len(nodes):
            return
        progress = self.progress
        progress.refused_by[nodes] = -1
        self._backoff.failed(nodes, now)
        progress.untried[nodes] = -1
        progress.touch(nodes, Urgency.NEWS)
        if reason is not None:
            progress.reasons.update(dict.fromkeys(nodes.tolist(), reason))

    def clear_failures(self, nodes: Indices) -> None:
        """What failed has been done, or need not be."""
        self.progress.failures[nodes] = 0
        self.progress.failed[nodes] = -1
        self.progress.untried[nodes] = -1

    def cut_short(self, nodes: Indices, lost: tuple[str, ...]) -> None:
        """End what has been done and has yet to show, where it needs what is ``lost``: it never will."""
        progress = self.progress
        nodes = nodes[progress.phase[nodes] == Phase.SETTLING]
        for number in distinct(progress.mutation[nodes]).tolist():
            if not self.mutations[number].requires.keys().isdisjoint(lost):
                self._end(nodes[progress.mutation[nodes] == number])

    def pass_over(self, nodes: Indices) -> None:
        """Where something else comes next than what was not tried, nothing is in its way."""
        progress = self.progress
        nodes = nodes[(progress.untried[nodes] >= 0) & (progress.untried[nodes] != progress.next[nodes])]
        progress.untried[nodes] = -1
        self._backoff.over(nodes)
        for node in nodes.tolist():
            progress.reasons.pop(node, None)

    def overcome(self, nodes: Indices) -> None:
        """Where what failed has come about all the same, by itself or by somebody's hand, nothing is in the way."""
        progress = self.progress
        nodes = nodes[progress.failed[nodes] >= 0]
        for number in distinct(progress.failed[nodes]).tolist():
            done = nodes[progress.failed[nodes] == number]
            done = done[self._reached(number, done)]
            faulted = done[progress.fault[done]]
            if len(faulted):
                mutation = self.mutations[number]
                self.event(faulted, faults.over(f"{mutation.variable} is {mutation.to}"))
            self.clear_failures(done)
            progress.fault[done] = False
            self._backoff.over(done)
            progress.refused_by[done] = -1
            for node in done.tolist():
                progress.reasons.pop(node, None)

    def fault(self, nodes: Indices, now: float) -> None:
        """Stop in a named fault state. Tried once more after a long while, or when a person or a new desire says so."""
        if not len(nodes):
            return
        progress = self.progress
        progress.fault[nodes] = True
        progress.untried[nodes] = -1
        self._backoff.faulted(nodes, now)
        progress.touch(nodes, Urgency.NEWS)
        for node in nodes.tolist():
            self.event(np.array([node], dtype=np.int64), faults.begun(progress.reasons.get(node, "")))

    def event(self, nodes: Indices, text: str) -> None:
        """Note for the history what befell nodes."""
        self.facts.changes.append(Change(faults.EVENT, "", text, "engine", "", nodes))

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
        self.clear_failures(nodes[among(self.progress.failed[nodes], (-1, number))])
        for node in nodes.tolist() if self.progress.reasons else ():
            self.progress.reasons.pop(node, None)
        self.breakers[number].succeeded(now, len(nodes))
        self.progress.touch(nodes, Urgency.NEWS)
        self._walk(number, nodes, now)

    def _walk(self, number: int, nodes: Indices, now: float) -> None:
        """One step further; but not where the same step, from the same facts to the same goal, was done before.

        Brent's way of finding a circle: the landmark moves on after 1, 2, 4... steps, so that it is within any circle
        before long, and then it is met again."""
        progress = self.progress
        here = progress.decision[nodes]
        self.relapse(
            nodes[(here >= 0) & (progress.landmark[nodes] == here)],
            now,
            lambda node: (
                f"going round in circles: {self.mutations[number].name} succeeded, and led back to where it "
                f"began {int(progress.relapses[node])} times"
            ),
        )
        progress.walked[nodes] += 1
        moves = progress.walked[nodes] & (progress.walked[nodes] - 1) == 0
        progress.landmark[nodes[moves]] = here[moves]

    def relapse(self, nodes: Indices, now: float, words: Callable[[int], str]) -> None:
        """What was achieved is lost again, and nothing failed: wait longer each time, and fault after too many.
        ``words`` says what is wrong with a node, once it has been counted."""
        progress = self.progress
        progress.relapses[nodes] += 1
        again = nodes[progress.relapses[nodes] > 1]
        if not len(again):
            return
        self.wait_after_failure(again, None, now)
        lost = again[progress.relapses[again] > self.settings.relapses_to_fault]
        progress.reasons.update({node: words(node) for node in lost.tolist()})
        self.fault(lost, now)

    def forget_way(self, nodes: Indices) -> None:
        """They are at their goal, or that is another one: the way so far says nothing of the next."""
        self.progress.walked[nodes] = 0
        self.progress.landmark[nodes] = -1

    def _give_up(self, number: int, nodes: Indices, now: float) -> None:
        """End what cannot end well any more, rather than wait for all its time."""
        hopeless = self._hopeless_steps.hopeless(number, nodes)
        if not hopeless:
            return
        mutation = self.mutations[number]
        ended = np.array(list(hopeless), dtype=np.int64)
        resumed = among(self.progress.generation[ended], list(self._resumed))
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
        self.progress.touch(nodes, Urgency.NEWS)
        self.event(nodes, f"{self.mutations[number].name}, begun before a restart, {what}")

    def _disbelieve(self, number: int, nodes: Indices, now: float) -> None:
        """Believe what the mutation says to believe when it went wrong."""
        if self.mutations[number].on_failure == "unknown":
            self.facts.forget(nodes, (self.mutations[number].variable, *self._touched[number]))
            self.facts.schedule_look(nodes, None, now)

    def _fail(self, number: int, nodes: Indices, now: float, said: dict[int, str], default: str) -> None:
        """The step failed: believe what the mutation says to believe, wait, and fault after too many."""
        if not len(nodes):
            return
        mutation = self.mutations[number]
        self._end(nodes)
        self._disbelieve(number, nodes, now)
        self.breakers[number].failed(now, nodes.tolist())
        self._events({node: f"{mutation.name} failed: {said.get(node) or default}" for node in nodes.tolist()})
        self.progress.failures[nodes] += 1
        self.progress.failed[nodes] = number
        exhausted = self.progress.failures[nodes] >= self.settings.failures_to_fault
        self.wait_after_failure(nodes[~exhausted], None, now)
        self.fault(nodes[exhausted], now)

    def _leave_untried(self, number: int, nodes: Indices, now: float, said: dict[int, str]) -> None:
        """What the step needs is not there. Nobody failed: it is tried again after a long while, or as soon as the
        owners want something else, by the same name or another. Another step does not wait for it."""
        if not len(nodes):
            return
        self._end(nodes)
        name = self.mutations[number].name
        texts = {node: f"{name} was not tried: {said.get(node) or 'no reason given'}" for node in nodes.tolist()}
        self._events({node: text for node, text in texts.items() if self.progress.reasons.get(node) != text})
        if self._touched[number]:
            self.facts.schedule_look(nodes, None, now)  # they were forgotten when it was about to begin
        self.progress.refused_by[nodes] = -1
        self.progress.untried[nodes] = number
        self._backoff.untried(nodes, now)

    def _events(self, texts: dict[int, str]) -> None:
        """Note for the history, and as the nodes' trouble, what befell each."""
        self.progress.reasons.update(texts)
        alike: dict[str, list[int]] = {}
        for node, text in texts.items():
            alike.setdefault(text, []).append(node)
        for text, members in alike.items():
            self.event(np.array(members, dtype=np.int64), text)

    def _end(self, nodes: Indices) -> None:
        """The nodes' mutation has ended, one way or another."""
        if not len(nodes):
            return
        progress = self.progress
        for generation, count in zip(*np.unique(progress.generation[nodes], return_counts=True), strict=True):
            left = self._open.get(int(generation), 0) - int(count)
            if left > 0:
                self._open[int(generation)] = left
            elif self._open.pop(int(generation), None) is not None:
                self._settled.append(int(generation))
                self._resumed.discard(int(generation))
        progress.phase[nodes] = Phase.IDLE
        progress.mutation[nodes] = -1
        progress.generation[nodes] = 0
        progress.deadline[nodes] = NEVER
        progress.touch(nodes, Urgency.NEWS)

    def _chunks(self, nodes: Indices, most: int) -> Iterator[Indices]:
        shards = self.progress.shard[nodes]
        for shard in distinct(shards).tolist():
            members = nodes[shards == shard]
            for start in range(0, len(members), most):
                yield np.sort(members[start : start + most])

    def _begin(self, number: int, nodes: Indices, now: float) -> int:
        generation = self._next_generation
        self._next_generation += 1
        progress, here = self.progress, span(nodes)
        progress.mutation[here] = number
        progress.generation[here] = generation
        progress.since[here] = progress.acted_at[here] = now
        progress.deadline[here] = now + self.mutations[number].timeout
        progress.repeat_at[here] = progress.hopeless_since[here] = NEVER
        progress.start_fact[here] = self.table.columns[self.mutations[number].variable].fact[here]
        if len(nodes):
            self._open[generation] = len(nodes)
        return generation
