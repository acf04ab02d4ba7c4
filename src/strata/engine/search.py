"""Cheapest paths in the product of the variables, for one goal.

A state is one bit mask per variable that can matter: one bit for a known value, one for unknown. A mask of several
bits is a value that is still open to choice ("whatever we may find when we look"); a step that needs certain values
narrows it. A value that is only implied (``Variable.implies``) has a bit of its own: it is as good as a seen one, but
that no step starts from it, as nobody would see what becomes of it. The search is exact and deterministic: cost, then
fewer steps, then names. Knows masks and costs; what to observe and how to say that there is no way are ``planner``'s
and ``unreachable``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from strata.core.model import OTHER, UNKNOWN, WANTED, Model, Mutation
from strata.engine.search_bound import HOP, Landmarks

State = tuple[int, ...]
Path = tuple[int, ...]

UNKNOWN_BIT = 1
_MICRO = 1_000_000
"""Costs are added as whole millionths: sums must not depend on the order of adding."""


class TooLarge(Exception):
    """The search went over its limit of states; the model has too many values that matter at once."""


class Step(msgspec.Struct, frozen=True):
    """A mutation, compiled: masks by position of the variable."""

    mutation: Mutation
    cost: int
    needs: tuple[tuple[int, int], ...]
    """Position and the bits of which one must be set, where not every value will do."""
    gives: tuple[tuple[int, int], ...]
    """Position and the bit afterwards."""


class Space:
    """The variables of a model as positions and bits."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = tuple(model.variables)
        self.position = {name: at for at, name in enumerate(self.names)}
        self.bits: tuple[dict[str, int], ...] = tuple(
            {symbol: 1 << at for at, symbol in enumerate((UNKNOWN, *model.variables[name].symbols))}
            for name in self.names
        )
        proved = {rule.other for rule in model.implications() if model.variables[rule.other].observer}
        self.implied: tuple[dict[str, int], ...] = tuple(
            {symbol: bit << len(bits) - 1 for symbol, bit in bits.items() if symbol != UNKNOWN}
            if name in proved
            else {}
            for name, bits in zip(self.names, self.bits, strict=True)
        )
        """The bits of values that are known by implication, where that can be and somebody could see them instead."""
        self.full = tuple(
            sum(bits.values()) + sum(more.values()) for bits, more in zip(self.bits, self.implied, strict=True)
        )

    def mask(self, variable: int, symbols: Sequence[str] | frozenset[str], *, implied: bool = True) -> int:
        """The bits of ``symbols``; unless ``implied``, only as seen."""
        seen = sum(self.bits[variable][symbol] for symbol in symbols)
        more = self.implied[variable]
        return seen + sum(more.get(symbol, 0) for symbol in symbols) if implied and more else seen

    def seen(self, variable: int, mask: int) -> bool:
        """Whether ``mask`` stands for something that was seen: it is neither unknown nor implied."""
        return bool(mask & (sum(self.bits[variable].values()) - UNKNOWN_BIT))

    def symbols(self, variable: int, mask: int) -> list[str]:
        """The values that ``mask`` stands for."""
        more = self.implied[variable]
        return [symbol for symbol, bit in self.bits[variable].items() if (bit | more.get(symbol, 0)) & mask]

    def compile(self, mutation: Mutation, desired: Mapping[str, frozenset[str]], *, careful: bool = True) -> Step:
        """``mutation`` as masks. ``careful``: a destructive one never acts on what is unknown."""
        own = self.position[mutation.variable]
        needs = {own: self.mask(own, mutation.start, implied=False)}
        for name, symbols in mutation.requires.items():
            at = self.position[name]
            needs[at] = needs.get(at, self.full[at]) & self.mask(at, symbols)
        for name, symbols in mutation.excludes.items():
            at = self.position[name]
            needs[at] = needs.get(at, self.full[at]) & ~self.mask(at, symbols)
        if careful and mutation.destructive:
            needs = {at: mask & ~UNKNOWN_BIT for at, mask in needs.items()}
        gives = {}
        for name, symbol in self.model.effects(mutation).items():
            at = self.position[name]
            # A value that nobody asked for is some other value.
            meant = OTHER if symbol == WANTED and WANTED not in desired.get(name, ()) else symbol
            gives[at] = self.bits[at][meant]
        return Step(
            mutation,
            round(mutation.cost * _MICRO),
            tuple((at, mask) for at, mask in needs.items() if mask != self.full[at]),
            tuple(gives.items()),
        )


class Goal:
    """One set of desires, with everything found so far about the ways to it."""

    def __init__(
        self,
        space: Space,
        desires: Sequence[frozenset[str] | None],
        *,
        means: Sequence[frozenset[str] | None] | None = None,
        denied: frozenset[str] = frozenset(),
        careful: bool = True,
        limit: int = 200_000,
    ) -> None:
        self.limit = limit
        self.wanted = tuple((at, space.mask(at, want)) for at, want in enumerate(desires) if want is not None)
        self.means = means or desires
        """What ``wanted`` is of an open variable can be known without it being part of this goal."""
        named = {space.names[at]: want for at, want in enumerate(self.means) if want is not None}
        usable = [
            space.compile(mutation, named, careful=careful)
            for _, mutation in sorted(space.model.mutations.items())
            if denied.isdisjoint(mutation.guards)
            and not (mutation.to == WANTED and WANTED not in named.get(mutation.variable, ()))
        ]
        # What needs one of no values at all contradicts itself and is never taken.
        usable = [step for step in usable if all(mask for _, mask in step.needs)]
        self.steps, self.relevant = self._relevant(usable)
        self._landmarks = Landmarks(self.wanted, self.steps, space.full)
        self._best: dict[State, tuple[int, Path]] = {}
        self._hopeless: set[State] = set()

    def _relevant(self, usable: list[Step]) -> tuple[tuple[Step, ...], frozenset[int]]:
        """The steps that can matter and the variables that they and the goal depend on."""
        variables = {at for at, _ in self.wanted}
        chosen: set[int] = set()
        grown = True
        while grown:
            grown = False
            for at, step in enumerate(usable):
                if at not in chosen and any(variable in variables for variable, _ in step.gives):
                    chosen.add(at)
                    variables.update(variable for variable, _ in step.needs)
                    grown = True
        return tuple(usable[at] for at in sorted(chosen)), frozenset(variables)

    def reduce(self, masks: Sequence[int]) -> State:
        """``masks`` with what cannot matter made equal, so that states that differ only there are one."""
        return tuple(mask if at in self.relevant else 0 for at, mask in enumerate(masks))

    def holds(self, state: State) -> bool:
        """Whether the goal is there (or can be, where the state is open to choice)."""
        return all(state[at] & mask for at, mask in self.wanted)

    def apply(self, step: Step, state: State) -> State | None:
        """The state after ``step``; None if it cannot be taken."""
        after = list(state)
        for at, mask in step.needs:
            after[at] &= mask
            if not after[at]:
                return None
        for at, bit in step.gives:
            if at in self.relevant:
                after[at] = bit
        return tuple(after)

    def cheapest(self, start: State) -> tuple[int, Path] | None:
        """Cost in millionths and positions in ``steps`` of the cheapest way from ``start``; None if there is none."""
        known = self._best.get(start)
        if known is not None or start in self._hopeless:
            return known
        found = self._search(start)
        if found is not None:
            self._remember(start, *found)
        return found

    def _search(self, start: State) -> tuple[int, Path] | None:
        """A* with a consistent bound in cost and in steps, so that ties are broken exactly as documented."""
        bound = self._landmarks.begin(start)
        if bound is None:
            self._hopeless.add(start)
            return None
        # A label: least cost and steps of a whole way by here, the path so far, its cost, the state. A label with the
        # empty state is a whole way, known from an earlier search.
        heap: list[tuple[int, int, Path, int, State]] = [(*bound.ahead(start), (), 0, start)]
        closed: set[State] = set()
        while heap:
            _, _, path, cost, state = heappop(heap)
            if not state:
                return cost, path
            if state in closed:
                continue
            if len(closed) >= self.limit:
                raise TooLarge
            closed.add(state)
            if self.holds(state):
                return cost, path
            known = self._best.get(state)
            if known is not None:
                total, way = cost + known[0], path + known[1]
                heappush(heap, (total, len(way) * HOP, way, total, ()))
                continue
            if state in self._hopeless:
                continue
            for at, step in enumerate(self.steps):
                after = self.apply(step, state)
                if after is None or after in closed:
                    continue
                more, hops = bound.ahead(after)
                so_far, way = cost + step.cost, (*path, at)
                heappush(heap, (so_far + more, len(way) * HOP + hops, way, so_far, after))
        self._hopeless |= closed
        return None

    def _remember(self, state: State, cost: int, path: Path) -> None:
        """Keep the way for every state on it: the rest of a cheapest way is a cheapest way."""
        for done, at in enumerate(path):
            self._best.setdefault(state, (cost, path[done:]))
            after = self.apply(self.steps[at], state)
            if after is None:
                raise AssertionError("a found way cannot be walked")
            state, cost = after, cost - self.steps[at].cost
        self._best.setdefault(state, (0, ()))
