"""The lower bound by which the planner's search is guided (A*): from landmarks, what every way to a goal must pass.

If all steps that give what the goal needs have a need in common, that need is a landmark too: the OS is not up
without power having been on. Each landmark that does not hold now costs at least its cheapest step, and a step that
serves several is shared out among them. The bound never falls by more than a step costs, so a search that follows
it stays exact. Knows only masks; see ``search``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

HOP = 720_720
"""One step, in parts that can be shared among many landmarks without a rest."""

_MOST = 64
"""Landmarks beyond this many sharpen the bound less than they cost."""


class Step(Protocol):
    """What is needed of a step: see ``search.Step``."""

    @property
    def cost(self) -> int: ...
    @property
    def needs(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def gives(self) -> tuple[tuple[int, int], ...]: ...


class _Landmark(NamedTuple):
    at: int
    mask: int
    serving: tuple[int, ...]
    """Steps that give it."""
    before: tuple[int, ...]
    """Landmarks that must have held before this one can be had."""


class Landmarks:
    """The landmarks of one goal."""

    def __init__(self, wanted: Sequence[tuple[int, int]], steps: Sequence[Step], full: Sequence[int]) -> None:
        self._goals = tuple(range(len(wanted)))
        self._costs = [step.cost for step in steps]
        places = list(wanted)
        known = {place: number for number, place in enumerate(places)}
        self._all: list[_Landmark] = []
        for at, mask in places:  # grows while it is walked
            serving = tuple(number for number, step in enumerate(steps) if _serves(step, at, mask))
            common = _common_needs([steps[number] for number in serving], full)
            for place in common:
                if place not in known and len(places) < _MOST:
                    known[place] = len(places)
                    places.append(place)
            before = tuple(known[place] for place in common if place in known)
            self._all.append(_Landmark(at, mask, serving, before))

    def begin(self, start: Sequence[int]) -> Bound | None:
        """The bound for a search from ``start``; None if there is certainly no way.

        Only what is lacking at the start counts: steps are shared out among that, once and for all. Sharing anew at
        every state would be sharper, but then the bound could fall by more than a step costs.
        """
        lacking: dict[int, _Landmark] = {}
        waiting = list(self._goals)
        while waiting:
            number = waiting.pop()
            landmark = self._all[number]
            if number in lacking or start[landmark.at] & landmark.mask:
                continue
            if not landmark.serving:
                return None
            lacking[number] = landmark
            waiting.extend(landmark.before)
        shares: dict[int, int] = {}
        for landmark in lacking.values():
            for step in landmark.serving:
                shares[step] = shares.get(step, 0) + 1
        prices = {
            number: (
                min(self._costs[step] // shares[step] for step in landmark.serving),
                min(HOP // shares[step] for step in landmark.serving),
            )
            for number, landmark in lacking.items()
        }
        return Bound(
            tuple(number for number in self._goals if number in lacking),
            {
                number: (landmark.at, landmark.mask, *prices[number], tuple(b for b in landmark.before if b in lacking))
                for number, landmark in lacking.items()
            },
        )


class Bound:
    """A lower bound of what lies ahead, for the states of one search."""

    def __init__(self, goals: tuple[int, ...], lacking: dict[int, tuple[int, int, int, int, tuple[int, ...]]]) -> None:
        self._goals = goals
        self._lacking = lacking

    def ahead(self, state: Sequence[int]) -> tuple[int, int]:
        """At least this cost and these parts of steps."""
        cost = hops = 0
        seen = set(self._goals)
        waiting = list(self._goals)
        while waiting:
            at, mask, price, length, before = self._lacking[waiting.pop()]
            if state[at] & mask:
                continue
            cost += price
            hops += length
            for number in before:
                if number not in seen:
                    seen.add(number)
                    waiting.append(number)
        return cost, hops


def _serves(step: Step, at: int, mask: int) -> bool:
    return any(variable == at and bit & mask for variable, bit in step.gives)


def _common_needs(steps: Sequence[Step], full: Sequence[int]) -> list[tuple[int, int]]:
    """Position and mask of what all of ``steps`` need in some way."""
    if not steps:
        return []
    common = dict(steps[0].needs)
    for step in steps[1:]:
        needs = dict(step.needs)
        common = {at: mask | needs[at] for at, mask in common.items() if at in needs}
    return [(at, mask) for at, mask in common.items() if mask != full[at]]
