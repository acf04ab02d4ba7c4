"""From what is true of a node to what is wanted: the cheapest chain of mutations, or what stands in the way.

``Planner.plan`` is asked per *class* (one tuple of facts, one of desires); thousands of identical nodes cost one
search and then a look-up. Pure: it looks at nothing itself, knows no node, no clock and no driver; it says which
variables somebody should look at first.

When to look. A variable that is unknown and can be observed is worth a look if the way depends on it: if the
cheapest way would be shorter for some value of it, or if a step of the way would act in spite of not knowing. What
cannot be otherwise is not looked at: the OS of a node without power (``Variable.lost_when``) is lost, not merely
unseen; such a variable is looked at only when there is no way without (a destructive step needs it known).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from strata.core.errors import BadRequest
from strata.core.model import ABSENT, OTHER, UNKNOWN, WANTED, Model
from strata.engine.search import UNKNOWN_BIT, Goal, Path, Space, State, TooLarge
from strata.engine.unreachable import blind, explain

Facts = tuple[str, ...]
"""One symbol per variable, in the model's order."""

Desires = tuple[frozenset[str] | None, ...]
"""Per variable, in the model's order: the symbols that will do, or None if nobody wants anything of it."""

_NOTHING: frozenset[str] = frozenset()
_MOST_CLASSES = 200_000
_MOST_BRANCHES = 512


class Plan(msgspec.Struct, frozen=True):
    """The answer for one class of nodes."""

    status: Literal["done", "plan", "observe", "unreachable"]
    """``done``: the goal holds. ``plan``: take ``steps``. ``observe``: look at ``observe`` first, then ask again.
    ``unreachable``: there is no way, ``reason`` says why."""
    observe: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """Names of mutations, in order. With ``observe``: the way if nothing is found by looking, if there is one."""
    cost: float = 0.0
    reason: str = ""
    """Why there is no way; of a plan: why there is none to the part of the goal that it leaves out."""
    unseen: tuple[str, ...] = ()
    """With ``reason``: what was looked at in vain, and stands in the way by that."""


class Planner:
    """Plans for one model. ``denied``: guards that say no; their mutations are left out.

    ``limit`` is the most states that one search visits; beyond it the goal is reported unreachable, with that reason.
    """

    def __init__(self, model: Model, *, denied: frozenset[str] = _NOTHING, limit: int = 200_000) -> None:
        unheard = sorted(denied - set(model.guards))
        if unheard:
            raise BadRequest(f"no such guard; known are {', '.join(model.guards) or 'none'}", where=unheard[0])
        self.model = model
        self.denied = denied
        self._limit = limit
        self._space = Space(model)
        self._plans: dict[tuple[Facts, Desires, frozenset[str], frozenset[str], Desires], Plan] = {}
        self._goals: dict[tuple[Desires, Desires], Goal] = {}

    def plan(
        self,
        facts: Facts,
        desires: Desires,
        assume_observed: frozenset[str] = _NOTHING,
        implied: frozenset[str] = _NOTHING,
        means: Desires | None = None,
    ) -> Plan:
        """The way of a node of this class to all that is desired.

        ``assume_observed`` names variables that were just looked at and not seen: not to be asked for again.
        ``implied`` names those whose facts are only proved by others. ``means``: desires of which ``desires`` are a
        part; the others are not to be fulfilled, but say what ``wanted`` is.
        """
        key = (facts, desires, assume_observed, implied, means or desires)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_CLASSES:
                self._plans.clear()
            plan = self._plans[key] = self._think(*key)
        return plan

    def advance(
        self,
        facts: Facts,
        desires: Desires,
        assume_observed: frozenset[str] = _NOTHING,
        implied: frozenset[str] = _NOTHING,
    ) -> Plan:
        """What to do with a node of this class: ``plan``, or if there is no way to the whole goal, the way to the part
        of it that can be had. Of that part is every desire that can be fulfilled by itself; what cannot is left alone:
        the way changes nothing of it, for nobody knows that it is not as desired.
        """
        whole = self.plan(facts, desires, assume_observed, implied)
        if whole.status != "unreachable":
            return whole
        part: list[frozenset[str] | None] = []
        for at, want in enumerate(desires):
            alone = tuple(want if place == at else None for place in range(len(desires)))
            there = want is not None and self.plan(facts, alone, assume_observed, implied, desires)
            part.append(want if there and there.status != "unreachable" else None)
        left = {name for name, want, had in zip(self._space.names, desires, part, strict=True) if want != had}
        if not left:
            return whole  # they exclude each other, and nobody said which matters more
        plan = self.plan(facts, tuple(part), assume_observed, implied, desires)
        if plan.status not in ("plan", "observe"):
            return whole
        if any(left.intersection(self.model.effects(self.model.mutations[step])) for step in plan.steps):
            return whole
        return msgspec.structs.replace(plan, reason=whole.reason, unseen=whole.unseen)

    def worst_branch(self, facts: Facts, desires: Desires, observe: Iterable[str]) -> Plan | None:
        """The costliest plan over everything that looking at ``observe`` may find: what to expect at most.

        None if some finding leaves no way, or if there are too many findings to try.
        """
        looked = [self._space.position[name] for name in observe]
        choices = [self.model.variables[self._space.names[at]].symbols for at in looked]
        if _product(map(len, choices)) > _MOST_BRANCHES:
            return None
        worst: Plan | None = None
        for found in itertools.product(*choices):
            now = list(facts)
            for at, symbol in zip(looked, found, strict=True):
                now[at] = symbol
            self._bury(now, looked)
            branch = self.plan(tuple(now), desires, frozenset(self.model.variables))
            if branch.status == "unreachable":
                return None
            if worst is None or branch.cost > worst.cost:
                worst = branch
        return worst

    def _think(
        self, facts: Facts, desires: Desires, assume_observed: frozenset[str], implied: frozenset[str], means: Desires
    ) -> Plan:
        masks = self._masks(facts, desires, implied)
        goal = self._goals.get((desires, means))
        if goal is None:
            if len(self._goals) >= _MOST_CLASSES:
                self._goals.clear()
            goal = Goal(self._space, desires, means=means, denied=self.denied, limit=self._limit)
            self._goals[desires, means] = goal
        if goal.holds(masks):
            return Plan("done")
        try:
            return self._way(goal, masks, facts, desires, assume_observed)
        except TooLarge:
            reason = f"gave up: over {self._limit} states searched; too many variables of the model hang together"
            return Plan("unreachable", reason=reason)

    def _way(self, goal: Goal, masks: State, facts: Facts, desires: Desires, assume_observed: frozenset[str]) -> Plan:
        sure = goal.cheapest(goal.reduce(masks))
        unseen = [
            at
            for at in sorted(goal.relevant)
            if not self._space.seen(at, masks[at])
            and self._space.names[at] not in assume_observed
            and self.model.variables[self._space.names[at]].observer
        ]
        lost = self._lost(facts)
        likely = [at for at in unseen if at not in lost]
        look = self._worth_looking(goal, masks, sure, likely)
        if sure is None and not look:
            look = self._needed_by_destructive(goal, masks, desires, likely) & set(unseen)
        if sure is not None:
            steps, cost = tuple(goal.steps[at].mutation.name for at in sure[1]), sure[0] / 1e6
            return Plan("observe" if look else "plan", self._named(look), steps, cost)
        if look:
            return Plan("observe", self._named(look))
        reason, blamed = explain(self._space, goal, masks, desires, self.denied, lost)
        return Plan("unreachable", reason=reason, unseen=tuple(blamed))

    def _worth_looking(
        self, goal: Goal, masks: State, sure: tuple[int, Path] | None, unseen: Sequence[int]
    ) -> set[int]:
        """Which of ``unseen`` to look at; empty if the sure way stands whatever they are."""
        if not unseen:
            return set()
        hoped_for = list(masks)
        for at in unseen:
            hoped_for[at] = self._space.full[at]
        start = goal.reduce(hoped_for)
        # What is implied will do for a sure way.
        unknown = [at for at in unseen if masks[at] == UNKNOWN_BIT]
        look = self._leans(goal, sure[1], unknown) if sure is not None else set()
        try:
            hope = goal.cheapest(start)
        except TooLarge:
            if sure is None:
                raise
            hope = sure  # too much to dream of: what is sure will do
        if hope is not None and (sure is None or hope[0] < sure[0]):
            look |= self._leans(goal, hope[1], unseen)
            look |= self._under({at for at, _ in goal.wanted if at in look}) & set(unseen)
        # One look of a driver shows all that it can see: ask for it in one go.
        observers = {self._observer(at) for at in look}
        return {at for at in unseen if at in look or self._observer(at) in observers}

    def _needed_by_destructive(self, goal: Goal, masks: State, desires: Desires, likely: Sequence[int]) -> set[int]:
        """What a destructive step must know, where there would be a way if it need not."""
        bold = Goal(self._space, desires, means=goal.means, denied=self.denied, careful=False, limit=self._limit)
        start = bold.reduce([self._space.full[at] if at in likely else mask for at, mask in enumerate(masks)])
        way = bold.cheapest(start)
        found = blind(self._space, bold, start, way[1]) if way is not None else None
        return set(found[1]) if found is not None else set()

    def _leans(self, goal: Goal, path: Path, unseen: Sequence[int]) -> set[int]:
        """The variables of ``unseen`` of which a step on the way needs certain values, before it is changed."""
        untouched = set(unseen)
        leant: set[int] = set()
        for at in path:
            step = goal.steps[at]
            leant |= {variable for variable, _ in step.needs if variable in untouched}
            untouched -= {variable for variable, _ in step.gives}
        return leant | {variable for variable, _ in goal.wanted if variable in untouched}

    def _under(self, positions: set[int]) -> set[int]:
        """What ``positions`` cannot outlive: if they turn out to be gone, the next question is about these."""
        found, fresh = set(positions), set(positions)
        while fresh:
            below = {
                self._space.position[other]
                for at in fresh
                for other in self.model.variables[self._space.names[at]].lost_when
            }
            fresh = below - found
            found |= fresh
        return found

    def _lost(self, facts: Sequence[str]) -> set[int]:
        """Unknown variables that cannot be anything else now, because of what others are."""
        lost: set[int] = set()
        unknown = [at for at, symbol in enumerate(facts) if symbol == UNKNOWN]
        while fresh := {at for at in unknown if at not in lost and self._doomed(at, facts, lost)}:
            lost |= fresh
        return lost

    def _bury(self, facts: list[str], positions: Sequence[int]) -> None:
        """Make unknown, among ``positions``, what cannot be together with the rest."""
        while dead := [at for at in positions if facts[at] != UNKNOWN and self._doomed(at, facts, self._lost(facts))]:
            for at in dead:
                facts[at] = UNKNOWN

    def _doomed(self, at: int, facts: Sequence[str], lost: set[int]) -> bool:
        fatal = self.model.variables[self._space.names[at]].lost_when
        others = ((self._space.position[other], values) for other, values in fatal.items())
        return any(other in lost or facts[other] in values for other, values in others)

    def _observer(self, at: int) -> str:
        return self.model.variables[self._space.names[at]].observer

    def _named(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._space.names[at] for at in sorted(positions))

    def _masks(self, facts: Facts, desires: Desires, implied: frozenset[str]) -> State:
        if len(facts) != len(self._space.names) or len(desires) != len(self._space.names):
            raise BadRequest(f"facts and desires have {len(self._space.names)} places, one per variable", where="plan")
        for name, bits, fact, want in zip(self._space.names, self._space.bits, facts, desires, strict=True):
            for symbol in (fact, *(want or ())):
                if symbol not in bits:
                    raise BadRequest(f"{symbol!r} is not one of {', '.join(bits)}", where=name)
            if want is not None and (not want or UNKNOWN in want):
                raise BadRequest("a desire is one or more known values", where=name)
        return tuple(
            (self._space.implied[at].get(fact) if name in implied else None) or self._space.bits[at][fact]
            for at, (name, fact) in enumerate(zip(self._space.names, facts, strict=True))
        )


def classify(model: Model, facts: Mapping[str, str], desires: Mapping[str, Collection[str]]) -> tuple[Facts, Desires]:
    """Real values as the planner's symbols; raise ``BadRequest`` for a variable or value that is not declared."""
    for name, value in facts.items():
        if value != UNKNOWN:
            model.check_value(name, value)
    for name, wanted in desires.items():
        for value in wanted:
            model.check_value(name, value)
    symbols: list[str] = []
    goals: list[frozenset[str] | None] = []
    for name, variable in model.variables.items():
        value, want = facts.get(name, UNKNOWN), desires.get(name)
        if variable.nothing and value == variable.nothing and want is not None and value not in want:
            value = ABSENT
        if variable.open and value not in (UNKNOWN, ABSENT):
            value = WANTED if want is not None and value in want else OTHER
        symbols.append(value)
        if want is not None and variable.open:
            want = {ABSENT if wish == ABSENT else WANTED for wish in want}
        goals.append(frozenset(want) if want is not None else None)
    return tuple(symbols), tuple(goals)


def _product(numbers: Iterable[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total
