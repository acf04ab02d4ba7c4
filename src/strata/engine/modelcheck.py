"""What is wrong with a model that is well formed: values that cannot be reached or left, steps that contradict.

Errors are what no site can want; warnings deserve a look; notes explain. Looks at the model alone: which nodes
exist, and what they are, does not matter. Whether names are declared at all is ``Model.of``'s to check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

import msgspec

from strata.core.model import OTHER, UNKNOWN, WANTED, Model, Mutation, Variable
from strata.engine.search import Goal, Space, TooLarge

_MOST_VALUES = 24
"""Variables with more values are left out where every pair of values is tried."""

_PAIR_LIMIT = 20_000


class Finding(msgspec.Struct, frozen=True):
    """One thing to look at."""

    level: Literal["error", "warning", "note"]
    code: str
    where: str
    """The declaration that it is about: ``variable os``, ``mutation boot``."""
    text: str


def check(model: Model, *, drivers: Collection[str] | None = None) -> list[Finding]:
    """Everything found, errors first. ``drivers``: those that are declared, where that is known."""
    findings = [
        *_values(model),
        *_mutations(model),
        *_duplicates(model),
        *_undoing(model),
        *_blind_starts(model),
        *_no_path(model),
        *_unused(model, drivers),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda finding: (order[finding.level], finding.where, finding.code))


def _gives(model: Model) -> dict[str, set[str]]:
    """For each variable: the values that some mutation gives it."""
    given: dict[str, set[str]] = {name: set() for name in model.variables}
    for mutation in model.mutations.values():
        for name, symbol in model.effects(mutation).items():
            given[name].add(symbol)
    return given


def _leaves(model: Model, mutation: Mutation, name: str, value: str) -> bool:
    """Whether ``mutation`` can be taken at ``name``=``value`` and changes it."""
    if name == mutation.variable and value not in mutation.start:
        return False
    if value not in mutation.requires.get(name, {value}) or value in mutation.excludes.get(name, ()):
        return False
    return model.effects(mutation).get(name, value) != value


def _values(model: Model) -> Iterator[Finding]:
    given = _gives(model)
    started = {name: set[str]() for name in model.variables}
    for mutation in model.mutations.values():
        started[mutation.variable] |= mutation.start
    for variable in model.variables.values():
        where, name = f"variable {variable.name}", variable.name
        targets = given[name] - {UNKNOWN}
        if not targets and not started[name]:
            text = (
                f"no mutation changes {name}: it is only seen"
                if variable.observer
                else f"nothing changes or sees {name}"
            )
            yield Finding("note", "only-seen", where, text)
            continue
        for value in variable.symbols:
            if value == OTHER:
                continue
            yield from _value(model, variable, value, targets, started[name])


def _value(model: Model, variable: Variable, value: str, targets: set[str], starts: set[str]) -> Iterator[Finding]:
    where, named = f"variable {variable.name}", f"{variable.name}={value}"
    if value not in targets and not variable.open:
        if variable.observer:
            yield Finding("note", "only-seen", where, f"{named} can be seen, but no mutation leads to it")
        elif value in starts:
            text = f"{named} is unreachable: no mutation leads to it and nobody observes it; it can only be a beginning"
            yield Finding("warning", "unreachable-value", where, text)
        else:
            text = f"{named} is unreachable: no mutation leads to it and nobody observes it"
            yield Finding("error", "unreachable-value", where, text)
    others = sorted(targets - {value})
    if others and not any(_leaves(model, m, variable.name, value) for m in model.mutations.values()):
        if value == WANTED:
            return  # another desire turns it into "other", which can be left
        text = f"{named} is a dead end: no mutation leaves it, so {_or(others)} is out of reach from there"
        yield Finding("error", "dead-end", where, text)


def _mutations(model: Model) -> Iterator[Finding]:
    given, space = _gives(model), Space(model)
    for mutation in model.mutations.values():
        where = f"mutation {mutation.name}"
        both = mutation.requires.keys() & mutation.excludes.keys()
        for name in sorted(both):
            if not mutation.requires[name] - mutation.excludes[name]:
                text = f"requires and excludes {name}={_or(sorted(mutation.requires[name]))}: it can never be taken"
                yield Finding("error", "contradiction", where, text)
        step = space.compile(mutation, {})
        if mutation.destructive and any(not mask for _, mask in step.needs) and not both:
            text = "is destructive, so it never acts on unknown, and needs something to be unknown"
            yield Finding("error", "contradiction", where, text)
        for name, allowed in sorted(mutation.requires.items()):
            possible = given[name] | ({UNKNOWN} if name != mutation.variable else set())
            if not model.variables[name].observer and given[name] and not allowed & possible:
                text = f"requires {name}={_or(sorted(allowed))}, which nothing gives and nobody observes"
                yield Finding("error", "unsatisfiable", where, text)
        if mutation.start == {mutation.to} and model.effects(mutation).keys() == {mutation.variable}:
            yield Finding("error", "no-progress", where, f"goes from {mutation.to} to {mutation.to}: changes nothing")


def _duplicates(model: Model) -> Iterator[Finding]:
    mutations = sorted(model.mutations.values(), key=lambda mutation: mutation.name)
    for at, one in enumerate(mutations):
        for other in mutations[at + 1 :]:
            if (one.variable, one.to, one.requires, one.excludes) != (
                *(other.variable, other.to, other.requires, other.excludes),
            ):
                continue
            shared = sorted(one.start & other.start)
            if shared:
                text = f"does the same as {other.name} from {_or(shared)}, under the same conditions: only one is used"
                yield Finding("error", "conflict", f"mutation {one.name}", text)


def _undoing(model: Model) -> Iterator[Finding]:
    """Pairs of goals of which every mutation for one takes away the other."""
    makers: dict[tuple[str, str], list[Mutation]] = {}
    for mutation in model.mutations.values():
        for name, symbol in model.effects(mutation).items():
            if symbol != UNKNOWN:
                makers.setdefault((name, symbol), []).append(mutation)
    goals = sorted(makers)
    for at, (name, value) in enumerate(goals):
        for other, wish in goals[at + 1 :]:
            if other == name:
                continue
            if all(model.effects(m).get(other, wish) != wish for m in makers[name, value]) and all(
                model.effects(m).get(name, value) != value for m in makers[other, wish]
            ):
                text = (
                    f"every way to {name}={value} undoes {other}={wish}, and the other way round: desiring both loops"
                )
                yield Finding("warning", "undo-cycle", f"variable {name}", text)


def _blind_starts(model: Model) -> Iterator[Finding]:
    """Mutations that start only where nothing is known, of variables that somebody looks at before they do."""
    for mutation in model.mutations.values():
        variable = model.variables[mutation.variable]
        if mutation.start != {UNKNOWN} or not variable.observer:
            continue
        if any(
            name in mutation.requires and mutation.requires[name] <= fatal for name, fatal in variable.lost_when.items()
        ):
            continue  # it cannot be anything else then, and nobody looks
        text = (
            f"starts only from {variable.name}=unknown, and {variable.observer} looks before it does: whatever that "
            f"finds, this cannot start; what makes {variable.name} unknown again goes round in circles"
        )
        yield Finding("warning", "blind-start", f"mutation {mutation.name}", text)


def _no_path(model: Model) -> Iterator[Finding]:
    """Values between which there is no way, whatever the other variables are."""
    space, given = Space(model), _gives(model)
    for at, (name, variable) in enumerate(model.variables.items()):
        if len(variable.symbols) > _MOST_VALUES:
            continue
        lacking: dict[str, list[str]] = {}
        only_seen = set(variable.symbols) - given[name]
        for to in sorted(given[name] - {UNKNOWN, OTHER}):
            makers = [one for one in model.mutations.values() if one.variable == name and one.to == to]
            if makers and all(one.start <= only_seen for one in makers):
                continue  # a station on the way out of what nobody brings about: there is no way to it from elsewhere
            desires = [frozenset({to}) if place == at else None for place in range(len(space.names))]
            goal = Goal(space, desires, limit=_PAIR_LIMIT)
            for start in variable.symbols:
                masks = [space.bits[at][start] if place == at else full for place, full in enumerate(space.full)]
                try:
                    if start != to and goal.cheapest(goal.reduce(masks)) is None:
                        lacking.setdefault(start, []).append(to)
                except TooLarge:
                    continue
        if lacking:
            pairs = "; ".join(f"from {start} to {_or(ends)}" for start, ends in lacking.items())
            yield Finding("warning", "no-path", f"variable {name}", f"there is no way {pairs}")


def _unused(model: Model, drivers: Collection[str] | None) -> Iterator[Finding]:
    asked = {guard for mutation in model.mutations.values() for guard in mutation.guards}
    for name, guard in model.guards.items():
        if name not in asked and not guard.by_hand:
            yield Finding("warning", "unused-guard", f"guard {name}", "no mutation asks it")
    used: set[str] = {mutation.driver for mutation in model.mutations.values()}
    used |= {variable.observer for variable in model.variables.values()}
    used |= {guard.driver for guard in model.guards.values()}
    if drivers is not None:
        for name in sorted(set(drivers) - used):
            yield Finding("warning", "unused-driver", f"driver {name}", "no variable, mutation or guard names it")


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)
