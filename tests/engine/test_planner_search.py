"""The planner against brute force, on random small models."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.model import UNKNOWN, WANTED, Layer, Model, Mutation, Variable
from strata.engine.planner import Desires, Facts, Planner

State = tuple[str, ...]

pytestmark = pytest.mark.slow


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Two to four variables, one of them perhaps open, with up to nine mutations among them."""
    count = draw(st.integers(2, 4))
    opened = draw(st.sampled_from([None, 0, 1]))
    variables = []
    for at in range(count):
        lost = {}
        if at and draw(st.booleans()):
            lost = {"v0": frozenset(draw(st.sets(st.sampled_from(variables[0].symbols), min_size=1, max_size=1)))}
        variables.append(
            Variable(
                name=f"v{at}",
                open=at == opened,
                values=() if at == opened else ("a", "b", "c")[: draw(st.integers(2, 3))],
                lost_when=lost,
                observer=draw(st.sampled_from(["", "eye", "ear"])),
            )
        )
    mutations = [draw(mutation(variables, f"m{at}")) for at in range(draw(st.integers(1, 9)))]
    return Model.of(Layer(variables=tuple(variables), mutations=tuple(mutations)))


@st.composite
def mutation(draw: st.DrawFn, variables: list[Variable], name: str) -> Mutation:
    own, *rest = draw(st.permutations(variables))
    roles = {other.name: draw(st.sampled_from(["", "", "requires", "excludes", "sets", "forgets"])) for other in rest}

    def subset(variable: Variable) -> frozenset[str]:
        return frozenset(draw(st.sets(st.sampled_from([UNKNOWN, *variable.symbols]), min_size=1, max_size=3)))

    return Mutation(
        name=name,
        variable=own.name,
        start=subset(own),
        to=draw(st.sampled_from(["wanted", "absent"] if own.open else own.values)),
        requires={v.name: subset(v) for v in rest if roles[v.name] == "requires"},
        excludes={v.name: subset(v) for v in rest if roles[v.name] == "excludes"},
        sets={v.name: draw(st.sampled_from(v.symbols)) for v in rest if roles[v.name] == "sets"},
        forgets=tuple(v.name for v in rest if roles[v.name] == "forgets"),
        cost=draw(st.sampled_from([0.1, 0.2, 1, 2, 5])),
        destructive=draw(st.booleans()),
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, Facts, Desires]:
    model = draw(models())
    facts = tuple(draw(st.sampled_from([UNKNOWN, *v.symbols])) for v in model.variables.values())
    desires = tuple(
        draw(st.none() | st.sets(st.sampled_from(_desirable(v)), min_size=1, max_size=2).map(frozenset))
        for v in model.variables.values()
    )
    return model, facts, desires


def _desirable(variable: Variable) -> list[str]:
    return ["wanted", "absent"] if variable.open else list(variable.values)


def may(model: Model, mutation: Mutation, state: State, desires: Desires) -> bool:
    """The rule of the model, written once more, naively."""
    now = dict(zip(model.variables, state, strict=True))
    wants = dict(zip(model.variables, desires, strict=True))
    if mutation.to == WANTED and WANTED not in (wants[mutation.variable] or ()):
        return False
    if now[mutation.variable] not in mutation.start:
        return False
    if any(now[name] not in allowed for name, allowed in mutation.requires.items()):
        return False
    if any(now[name] in refused for name, refused in mutation.excludes.items()):
        return False
    named = {mutation.variable, *mutation.requires, *mutation.excludes}
    return not (mutation.destructive and any(now[name] == UNKNOWN for name in named))


def after(model: Model, mutation: Mutation, state: State, desires: Desires) -> State:
    now = dict(zip(model.variables, state, strict=True))
    wants = dict(zip(model.variables, desires, strict=True))
    for name, symbol in model.effects(mutation).items():
        now[name] = "other" if symbol == WANTED and WANTED not in (wants[name] or ()) else symbol
    return tuple(now.values())


def holds(state: State, desires: Desires) -> bool:
    return all(want is None or symbol in want for symbol, want in zip(state, desires, strict=True))


Label = tuple[int, int, tuple[str, ...]]


def brute_force(model: Model, desires: Desires) -> dict[State, Label]:
    """Bellman-Ford over the full product: from every state the cheapest, then shortest, then first way by names."""
    states = list(itertools.product(*([UNKNOWN, *v.symbols] for v in model.variables.values())))
    best: dict[State, Label] = {state: (0, 0, ()) for state in states if holds(state, desires)}
    edges = [
        (state, after(model, m, state, desires), round(m.cost * 1e6), m.name)
        for state in states
        for m in model.mutations.values()
        if may(model, m, state, desires)
    ]
    changed = True
    while changed:
        changed = False
        for begin, end, price, name in edges:
            if end in best:
                cost, length, names = best[end]
                label = (cost + price, length + 1, (name, *names))
                if begin not in best or label < best[begin]:
                    best[begin] = label
                    changed = True
    return best


@given(questions())
@settings(deadline=None, max_examples=300)
def test_the_plan_is_as_cheap_as_brute_force_finds_and_can_be_walked(question: tuple[Model, Facts, Desires]) -> None:
    model, facts, desires = question
    plan = Planner(model).plan(facts, desires, frozenset(model.variables))
    cheapest = brute_force(model, desires).get(facts)
    if cheapest is None:
        assert plan.status == "unreachable"
        assert plan.reason
        return
    assert plan.status == ("done" if holds(facts, desires) else "plan")
    assert (round(plan.cost * 1e6), len(plan.steps), plan.steps) == cheapest
    state = facts
    for name in plan.steps:
        assert may(model, model.mutations[name], state, desires)
        state = after(model, model.mutations[name], state, desires)
    assert holds(state, desires)


@given(questions())
@settings(deadline=None, max_examples=100)
def test_what_was_asked_before_never_changes_an_answer(question: tuple[Model, Facts, Desires]) -> None:
    model, _, desires = question
    seen = frozenset(model.variables)
    states = list(itertools.product(*([UNKNOWN, *v.symbols] for v in model.variables.values())))[:60]
    shared = Planner(model)
    answers = {state: shared.plan(state, desires, seen) for state in reversed(states)}
    for state in states[::7]:
        assert Planner(model).plan(state, desires, seen) == answers[state]


@given(questions())
@settings(deadline=None, max_examples=200)
def test_looking_ends_and_is_only_asked_for_what_is_unknown_and_has_an_observer(
    question: tuple[Model, Facts, Desires],
) -> None:
    model, facts, desires = question
    planner, looked = Planner(model), frozenset[str]()
    for _ in range(len(model.variables) + 1):
        plan = planner.plan(facts, desires, looked)
        if plan.status != "observe":
            break
        assert plan.observe
        for name in plan.observe:
            assert name not in looked
            assert model.variables[name].observer
            assert dict(zip(model.variables, facts, strict=True))[name] == UNKNOWN
        looked |= set(plan.observe)
    final = planner.plan(facts, desires, frozenset(model.variables))
    assert (plan.status, plan.steps, plan.reason) == (final.status, final.steps, final.reason)


@given(questions())
@settings(deadline=None, max_examples=200)
def test_a_plan_without_looking_stands_whatever_a_look_at_unlost_variables_would_find(
    question: tuple[Model, Facts, Desires],
) -> None:
    model, facts, desires = question
    planner = Planner(model)
    plan = planner.plan(facts, desires)
    if plan.status != "plan":
        return
    now = dict(zip(model.variables, facts, strict=True))
    lost = {name for name, v in model.variables.items() if any(now[o] in f for o, f in v.lost_when.items())}
    lost |= {n for n, v in model.variables.items() if lost & set(v.lost_when)}
    hidden = [n for n, v in model.variables.items() if now[n] == UNKNOWN and v.observer and n not in lost]
    for found in itertools.product(*(model.variables[name].symbols for name in hidden)):
        state = tuple((now | dict(zip(hidden, found, strict=True))).values())
        assert planner.plan(state, desires, frozenset(model.variables)).cost >= plan.cost - 1e-9
        for name in plan.steps:
            assert may(model, model.mutations[name], state, desires)
            state = after(model, model.mutations[name], state, desires)
        assert holds(state, desires)
