"""Why there is no way: which guard forbids, what must be known first, which mutation is missing.

Asked once per hopeless class, so it may take its time: it plans again with one obstacle lifted after the other,
and names the first whose lifting helps. If none does, a mutation is missing, and the chains of needs say where.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from strata.core.model import WANTED
from strata.engine.search import UNKNOWN_BIT, Goal, Path, Space, State, Step

_MOST_WAYS = 3
"""What blocks so many ways is told: the cheapest ones."""


class _End(NamedTuple):
    """Where a way to something ends, in words; ``circular``: in a need that the way began with."""

    text: str
    circular: bool


def explain(
    space: Space,
    goal: Goal,
    masks: State,
    desires: Sequence[frozenset[str] | None],
    denied: frozenset[str],
    lost: Collection[int] = (),
) -> tuple[str, list[str]]:
    """One sentence on why ``goal`` cannot be reached from ``masks``, and the variables that are in the way by not being
    seen; looking at ``lost`` would not help."""
    if denied:
        freed = Goal(space, desires, means=goal.means, limit=goal.limit)
        way = freed.cheapest(freed.reduce(masks))
        if way is not None:
            return _forbidden(freed, way[1], denied), []
    bold = Goal(space, desires, means=goal.means, denied=denied, careful=False, limit=goal.limit)
    way = bold.cheapest(bold.reduce(masks))
    found = blind(space, bold, bold.reduce(masks), way[1]) if way is not None else None
    if found is not None:
        names = [space.names[at] for at in found[1]]
        needs = f"{found[0].mutation.name} is destructive and needs {_and(names)} to be known"
        return f"{needs}; {_nobody_saw(space, names, masks)}", names
    # One unknown variable to blame is a better answer than all of them.
    unknown = [at for at in sorted(goal.relevant) if not space.seen(at, masks[at]) and at not in lost]
    for blamed in (*([at] for at in unknown), unknown):
        guess = goal.reduce([space.full[at] if at in blamed else mask for at, mask in enumerate(masks)])
        way = goal.cheapest(guess)
        if way is not None:
            return _unknown(space, goal, guess, way[1], masks)
    return _missing(space, goal, masks, desires, denied), []


def blind(space: Space, goal: Goal, state: State, path: Path) -> tuple[Step, list[int]] | None:
    """The first destructive step of ``path`` that would act on something unknown, and on what."""
    for at in path:
        step = goal.steps[at]
        if step.mutation.destructive:
            named = (step.mutation.variable, *step.mutation.requires, *step.mutation.excludes)
            unknown = sorted({space.position[name] for name in named if state[space.position[name]] == UNKNOWN_BIT})
            if unknown:
                return step, unknown
        state = _walk(goal, step, state)
    return None


def _forbidden(goal: Goal, path: Path, denied: frozenset[str]) -> str:
    for at in path:
        mutation = goal.steps[at].mutation
        for guard in mutation.guards:
            if guard in denied:
                return f"guard {guard} forbids {mutation.name}, and there is no way around it"
    raise AssertionError("a way without denied steps was not found before")


def _unknown(space: Space, goal: Goal, state: State, path: Path, masks: State) -> tuple[str, list[str]]:
    """The first step (or the goal itself) that needs something to be known that is not."""
    for at in path:
        step = goal.steps[at]
        for variable, mask in step.needs:
            if _is_open(state[variable]):
                name, values = space.names[variable], _or(space.symbols(variable, mask))
                needs = f"{step.mutation.name} needs {name} to be {values}"
                return f"{needs}; {_nobody_saw(space, [name], masks)}", [name]
        state = _walk(goal, step, state)
    names = [space.names[at] for at, _ in goal.wanted if _is_open(state[at])]
    what = "unknown" if all(masks[space.position[name]] == UNKNOWN_BIT for name in names) else "unseen"
    return f"no mutation starts from {_and(names)} {what}; {_nobody_saw(space, names, masks)}", names


def _nobody_saw(space: Space, names: Sequence[str], masks: State) -> str:
    watched = [name for name in names if space.model.variables[name].observer]
    implied = [name for name in watched if masks[space.position[name]] != UNKNOWN_BIT]
    if implied:
        value = _or(space.symbols(space.position[implied[0]], masks[space.position[implied[0]]]))
        observer = space.model.variables[implied[0]].observer
        return f"that {implied[0]} is {value} is only implied, {observer} does not see it"
    if not watched:
        return f"{_and(names)} {'is' if len(names) == 1 else 'are'} unknown, and no observer is declared"
    return f"{_and(watched)} {'was' if len(watched) == 1 else 'were'} looked at and stayed unknown"


def _missing(
    space: Space, goal: Goal, masks: State, desires: Sequence[frozenset[str] | None], denied: frozenset[str]
) -> str:
    reached = _reached(goal, masks)
    for at, mask in goal.wanted:
        if not reached[at] & mask:
            return _chain(space, goal, masks, reached, at, mask, denied)
    alone = [at for at, _ in goal.wanted if _alone(space, goal, masks, desires, at, denied)]
    apart = [f"{space.names[at]}={_or(space.symbols(at, mask))}" for at, mask in goal.wanted]
    if len(alone) == len(goal.wanted):
        both = "both" if len(apart) == 2 else "all"
        return f"its desires conflict: {_and(apart)} cannot {both} be true; unset or change one"
    at, mask = next((at, mask) for at, mask in goal.wanted if at not in alone)
    names = sorted(step.mutation.name for step in goal.steps if any(v == at and bit & mask for v, bit in step.gives))
    return (
        f"{space.names[at]}={_or(space.symbols(at, mask))} cannot be reached: what {_or(names)} needs "
        "can be had one by one, but not at the same time"
    )


def _alone(
    space: Space,
    goal: Goal,
    masks: State,
    desires: Sequence[frozenset[str] | None],
    at: int,
    denied: frozenset[str],
) -> bool:
    """Whether this part of the goal can be reached by itself."""
    only = [want if place == at else None for place, want in enumerate(desires)]
    part = Goal(space, only, means=goal.means, denied=denied, limit=goal.limit)
    return part.cheapest(part.reduce(masks)) is not None


def _reached(goal: Goal, masks: State) -> list[int]:
    """Every value that each variable can take if nothing is ever undone: more than what is really possible."""
    reached = list(masks)
    grown = True
    while grown:
        grown = False
        for step in goal.steps:
            if all(reached[at] & mask for at, mask in step.needs):
                for at, bit in step.gives:
                    if not reached[at] & bit:
                        reached[at] |= bit
                        grown = True
    return reached


def _chain(
    space: Space, goal: Goal, masks: State, reached: Sequence[int], at: int, mask: int, denied: frozenset[str]
) -> str:
    """Follow needs that cannot be met down to those that no mutation serves; of several ways, what blocks each."""
    ends = list(_ends(space, goal, masks, reached, at, mask, denied, (), frozenset()))
    # A way that comes back to what it is to make is told of only where there is no better reason.
    plain = [end.text for end in ends if not end.circular] or [end.text for end in ends]
    return "; or ".join(itertools.islice(dict.fromkeys(plain), _MOST_WAYS))


def _ends(
    space: Space,
    goal: Goal,
    masks: State,
    reached: Sequence[int],
    at: int,
    mask: int,
    denied: frozenset[str],
    trail: tuple[str, ...],
    above: frozenset[int],
) -> Iterator[_End]:
    """Where each way to these values ends. ``trail``: the mutations that need them; ``above``: what we come from."""
    name, values = space.names[at], _or(space.symbols(at, mask & ~UNKNOWN_BIT or mask))
    needed = f" (needed by {' for '.join(reversed(trail))})" if trail else ""
    seen = above | {at}
    makers = [step for step in goal.steps if any(v == at and bit & mask for v, bit in step.gives)]
    if not makers:
        yield _End(_no_maker(space, at, mask, masks[at], denied) + needed, circular=False)
        return
    makers.sort(key=lambda step: (step.cost, step.mutation.name))
    unmet = {step.mutation.name: [need for need in step.needs if not reached[need[0]] & need[1]] for step in makers}
    fresh = {maker: [need for need in needs if need[0] not in seen] for maker, needs in unmet.items()}
    for maker, needs in fresh.items():
        if needs:
            yield from _ends(space, goal, masks, reached, *needs[0], denied, (*trail, maker), seen)
    if any(fresh.values()):
        return
    maker, needs = next((maker, needs) for maker, needs in unmet.items() if needs)
    there, starts = space.names[needs[0][0]], _or(space.symbols(*needs[0]))
    now = _or(space.symbols(needs[0][0], masks[needs[0][0]]))
    yield _End(
        f"a mutation is missing: nothing takes {there} from {now} to {values if there == name else starts}"
        f"; {maker} needs {there} to be {starts}{needed}",
        circular=True,
    )


def _no_maker(space: Space, at: int, mask: int, now: int, denied: frozenset[str]) -> str:
    """What to say of values that no usable mutation gives."""
    name, values = space.names[at], space.symbols(at, mask & ~UNKNOWN_BIT or mask)
    if values == [WANTED]:
        return f"{name} has no desired value: somebody must say which {name} is wanted"
    blocked = {
        mutation.name: sorted(denied.intersection(mutation.guards))
        for mutation in sorted(space.model.mutations.values(), key=lambda mutation: mutation.name)
        if space.model.effects(mutation).get(name) in values
    }
    whys = [
        f"guard {guards[0]} forbids {maker}" if guards else f"what {maker} needs contradicts itself"
        for maker, guards in blocked.items()
    ]
    if whys:
        lead = "leads" if len(whys) == 1 else "lead"
        return f"only {_and(list(blocked))} {lead} to {name}={_or(values)}, and {_and(whys)}"
    current = f" (it is {_or(space.symbols(at, now))})" if now != UNKNOWN_BIT else ""
    return f"a mutation is missing: no mutation leads to {name}={_or(values)}{current}"


def _walk(goal: Goal, step: Step, state: State) -> State:
    after = goal.apply(step, state)
    if after is None:
        raise AssertionError("a found way cannot be walked")
    return after


def _is_open(mask: int) -> bool:
    return mask & (mask - 1) != 0


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
