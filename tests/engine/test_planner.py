"""The planner on Strata's own layers, and its rules one by one on small models."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.core.model import Guard, Layer, Model, Mutation, Variable, values
from strata.engine.planner import Plan, Planner, classify
from strata.engine.table import VariableColumns
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from support.work import counted

MODEL = Model.of(HARDWARE, PROVISIONING, PLATFORM)
SEEN = frozenset(MODEL.variables)
READY = {"image": ["v2"], "config": ["c1"], "workload": ["in"]}
RUNNING = {
    "power": "on",
    "os": "up",
    "identity": "issued",
    "image": "v2",
    "personality": "active",
    "config": "c1",
    "workload": "in",
}
FROM_BOOT = ("boot", "enrol", "load-image", "start-personality", "configure", "join-workload")


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(MODEL)


def plan_named(
    planner: Planner,
    facts: Mapping[str, str],
    desires: Mapping[str, Collection[str]],
    assume_observed: frozenset[str] = frozenset(),
) -> Plan:
    """For real values by variable name; a fact that is missing is unknown."""
    return planner.plan(*classify(planner.model, facts, desires), assume_observed)


def small(*mutations: Mutation, **variables: Variable) -> Model:
    guards = {name for mutation in mutations for name in mutation.guards}
    return Model.of(
        Layer(variables=tuple(variables.values()), mutations=mutations, guards=tuple(Guard(name=g) for g in guards))
    )


A = Variable(name="a", values=("0", "1", "2"))
B = Variable(name="b", values=("0", "1"))


def step(name: str, variable: str, start: str, to: str, **more: object) -> Mutation:
    return Mutation(name=name, variable=variable, start=values(*start.split("|")), to=to, **more)  # type: ignore[arg-type]


def test_a_node_that_is_off_is_brought_all_the_way_to_work(planner: Planner) -> None:
    plan = plan_named(planner, {"power": "off"}, READY)
    assert plan == Plan("plan", (), ("power-on", *FROM_BOOT), 127.0)


@pytest.mark.parametrize("config", [{}, {"config": "c0"}, {"config": "absent"}])
def test_a_node_joins_the_workload_only_after_the_configuration_that_is_wanted(
    planner: Planner, config: dict[str, str]
) -> None:
    plan = plan_named(planner, RUNNING | {"workload": "out", "config": "unknown"} | config, READY)
    assert plan.steps == ("configure", "join-workload")


@pytest.mark.parametrize("config", ["unknown", "c0"])
def test_a_node_of_which_no_configuration_is_wanted_joins_the_workload_without(planner: Planner, config: str) -> None:
    wanted = {"image": ["v2"], "workload": ["in"]}
    plan = plan_named(planner, RUNNING | {"workload": "out", "config": config}, wanted)
    assert plan.steps == ("join-workload",)


def test_a_node_at_its_goal_needs_nothing(planner: Planner) -> None:
    assert plan_named(planner, RUNNING, READY).status == "done"


def test_a_new_image_is_changed_over_to_without_a_reboot_and_after_leaving_work(planner: Planner) -> None:
    plan = plan_named(planner, RUNNING, READY | {"image": ["v3"]})
    assert plan.steps == ("leave-workload", "switch-image", "configure", "join-workload")


def test_an_update_under_way_is_waited_for(planner: Planner) -> None:
    plan = plan_named(
        planner, RUNNING | {"personality": "update", "workload": "out"}, READY | {"personality": ["active"]}
    )
    assert plan.steps[0] == "start-personality"


def test_a_member_that_the_agent_starts_again_is_waited_for_and_the_others_run_on(planner: Planner) -> None:
    facts = RUNNING | {"personality": "error", "config": "unknown", "workload": "out"}
    plan = plan_named(planner, facts, READY | {"personality": ["active"]})
    assert plan.steps == ("start-personality", "configure", "join-workload")
    assert plan_named(planner, facts, {"personality": ["idle"]}).steps == ("stop-personality",), "if that is wanted"


def test_a_personality_that_was_given_up_is_started_anew_without_a_reboot(planner: Planner) -> None:
    facts = RUNNING | {"personality": "fatal", "config": "absent", "workload": "out"}
    plan = plan_named(planner, facts, READY | {"personality": ["active"]})
    assert plan.steps == ("stop-personality", "start-personality", "configure", "join-workload")


def test_any_of_several_desired_values_will_do(planner: Planner) -> None:
    assert plan_named(planner, RUNNING, READY | {"image": ["v1", "v2"]}).status == "done"


def test_a_hung_node_is_power_cycled_once_it_is_known_that_nothing_runs_there(planner: Planner) -> None:
    hung = {"power": "on", "os": "hung"}
    assert plan_named(planner, hung, READY) == Plan("observe", ("workload",))
    assert plan_named(planner, hung | {"workload": "out"}, READY).steps == ("power-off", "power-on", *FROM_BOOT)
    assert plan_named(planner, hung | {"workload": "in"}, READY).steps[:2] == ("leave-workload", "power-off")


def test_nothing_destructive_is_planned_on_unknown(planner: Planner) -> None:
    plan = plan_named(planner, {"power": "on", "os": "hung"}, READY, SEEN)
    assert plan.status == "unreachable"
    assert plan.reason == (
        "power-off is destructive and needs workload to be known; workload was looked at and stayed unknown"
    )


def test_after_a_restart_everything_that_matters_is_looked_at_first(planner: Planner) -> None:
    # Nobody wants a minimal OS of a certain kind, or to know of its health: those do not matter.
    assert plan_named(planner, {}, READY) == Plan(
        "observe", tuple(name for name in MODEL.variables if name not in ("minos", "health"))
    )


def test_what_was_looked_at_in_vain_is_not_asked_for_again(planner: Planner) -> None:
    plan = plan_named(planner, {"power": "on"}, READY)
    assert (plan.status, plan.steps) == ("observe", FROM_BOOT)
    assert plan_named(planner, {"power": "on"}, READY, SEEN).status == "plan"


def test_the_os_of_a_node_without_power_is_not_looked_at(planner: Planner) -> None:
    assert plan_named(planner, {"power": "off"}, {"os": ["up"]}).status == "plan"


def test_a_goal_that_does_not_hang_on_the_unknown_is_planned_without_looking(planner: Planner) -> None:
    assert plan_named(planner, {"power": "off"}, {"power": ["on"]}) == Plan("plan", (), ("power-on",), 30.0)


def test_the_costliest_finding_of_a_look_is_known_beforehand(planner: Planner) -> None:
    facts, desires = classify(MODEL, {"workload": "out"}, {"os": ["up"]})
    look = planner.plan(facts, desires)
    worst = planner.worst_branch(facts, desires, look.observe)
    assert worst is not None
    assert worst.steps == ("power-off", "power-on", "boot")


def test_of_equal_costs_the_shorter_and_then_the_first_by_name_is_taken() -> None:
    model = small(
        step("z-direct", "a", "0", "2", cost=2),
        step("half", "a", "0", "1"),
        step("rest", "a", "1", "2"),
        step("b-direct", "a", "0", "2", cost=2, requires={"b": values("0", "1")}),
        a=A,
        b=B,
    )
    assert Planner(model).plan(("0", "0"), (values("2"), None)).steps == ("b-direct",)


def test_costs_that_floating_point_cannot_hold_are_added_exactly() -> None:
    model = small(
        step("once", "a", "0", "2", cost=0.3),
        step("first", "a", "0", "1", cost=0.1),
        step("then", "a", "1", "2", cost=0.2),
        a=A,
    )
    assert Planner(model).plan(("0",), (values("2"),)) == Plan("plan", (), ("once",), 0.3)


def test_the_denied_guard_is_named(planner: Planner) -> None:
    denied = Planner(MODEL, denied=frozenset({"no-running-job"}))
    plan = plan_named(denied, RUNNING, {"power": ["off"]})
    assert plan.status == "unreachable"
    assert plan.reason == "guard no-running-job forbids power-off, and there is no way around it"


def test_a_way_around_a_denied_guard_is_taken() -> None:
    model = small(step("quick", "a", "0", "1", guards=("g",)), step("slow", "a", "0", "1", cost=9), a=A)
    assert Planner(model).plan(("0",), (values("1"),)).steps == ("quick",)
    assert Planner(model, denied=frozenset({"g"})).plan(("0",), (values("1"),)).steps == ("slow",)


def test_a_guard_that_is_not_declared_cannot_be_denied() -> None:
    with pytest.raises(BadRequest, match="no-running-job"):
        Planner(MODEL, denied=frozenset({"nope"}))


@pytest.mark.parametrize(
    ("mutations", "facts", "desires", "reason"),
    [
        ([step("m", "a", "0", "1")], "00", ("2", ""), "a mutation is missing: no mutation leads to a=2 (it is 0)"),
        (
            [step("m", "a", "1", "2")],
            "00",
            ("2", ""),
            "a mutation is missing: nothing takes a from 0 to 2; m needs a to be 1",
        ),
        (
            [step("m", "a", "0", "1", requires={"b": values("1")})],
            "00",
            ("1", ""),
            "a mutation is missing: no mutation leads to b=1 (it is 0) (needed by m)",
        ),
        (
            [step("m", "a", "0", "1", sets={"b": "0"}), step("n", "b", "0", "1", sets={"a": "0"})],
            "00",
            ("1", "1"),
            "its desires conflict: a=1 and b=1 cannot both be true; unset or change one",
        ),
        (
            [step("m", "a", "0", "1", requires={"b": values("1")}, excludes={"b": values("1")})],
            "00",
            ("1", ""),
            "only m leads to a=1, and what m needs contradicts itself",
        ),
        (  # the cheaper of two makers is blocked by what it would make itself
            [step("m", "a", "1", "2"), step("n", "a", "0", "2", requires={"b": values("1")}, cost=5)],
            "00",
            ("2", ""),
            "a mutation is missing: no mutation leads to b=1 (it is 0) (needed by n)",
        ),
    ],
)
def test_if_there_is_no_way_it_says_which_mutation_is_missing(
    mutations: list[Mutation], facts: str, desires: tuple[str, str], reason: str
) -> None:
    plan = Planner(small(*mutations, a=A, b=B)).plan(
        tuple(facts), tuple(values(want) if want else None for want in desires)
    )
    assert (plan.status, plan.reason) == ("unreachable", reason)


def test_where_each_of_several_makers_is_blocked_it_says_by_what() -> None:
    one, other = (Variable(name=name, values=("0", "1")) for name in "cd")
    model = small(
        step("m", "a", "0", "1", requires={"b": values("1")}),
        step("n", "a", "0", "1", requires={"c": values("1")}, cost=5),
        step("o", "a", "0", "1", requires={"d": values("1")}, cost=9),
        step("p", "d", "0", "1", requires={"a": values("1")}),
        step("r", "c", "0", "1", requires={"b": values("0")}, excludes={"b": values("0")}),
        a=A,
        b=B,
        c=one,
        d=other,
    )
    plan = Planner(model).plan(("0", "0", "0", "0"), (values("1"), None, None, None))
    assert plan.reason == (
        "a mutation is missing: no mutation leads to b=1 (it is 0) (needed by m)"
        "; or only r leads to c=1, and what r needs contradicts itself (needed by n)"
    )


def test_an_open_variable_that_nobody_desires_cannot_be_brought_to_a_desired_value(planner: Planner) -> None:
    plan = plan_named(planner, {"power": "off"}, {"personality": ["active"]})
    assert plan.reason == (
        "image has no desired value: somebody must say which image is wanted (needed by start-personality)"
    )


def test_an_unknown_without_observer_is_blamed() -> None:
    plan = Planner(small(step("m", "a", "0", "1"), a=A)).plan(("unknown",), (values("1"),))
    assert plan.reason == ("no mutation starts from a unknown; a is unknown, and no observer is declared")


def test_excluded_unknown_counts_only_if_named() -> None:
    lax = small(step("m", "a", "0", "1", excludes={"b": values("1")}), a=A, b=B)
    strict = small(step("m", "a", "0", "1", excludes={"b": values("1", "unknown")}), a=A, b=B)
    assert Planner(lax).plan(("0", "unknown"), (values("1"), None)).status == "plan"
    assert Planner(strict).plan(("0", "unknown"), (values("1"), None)).status == "unreachable"


def many(count: int) -> tuple[dict[str, Variable], list[Mutation]]:
    variables = {f"v{at}": Variable(name=f"v{at}", values=("0", "1", "2")) for at in range(count)}
    mutations = [step(f"m{at}-{to}", f"v{at}", "0|1|2", str(to)) for at in range(count) for to in range(3)]
    return variables, mutations


def test_goals_that_do_not_touch_each_other_do_not_multiply() -> None:
    variables, mutations = many(20)
    plan = Planner(small(*mutations, **variables), limit=500).plan(("0",) * 20, (values("1"),) * 20)
    assert plan.steps == tuple(sorted(f"m{at}-1" for at in range(20)))


def test_a_search_over_its_limit_ends_and_says_so() -> None:
    variables, mutations = many(12)
    all_set = {name: values("1") for name in variables}
    mutations += [
        step("to-a", "a", "0", "1", requires=all_set, sets={"b": "0"}),
        step("to-b", "b", "0", "1", requires=all_set, sets={"a": "0"}),
    ]
    planner = Planner(small(*mutations, a=A, b=B, **variables), limit=500)
    plan = planner.plan(("0",) * 14, (values("1"), values("1"), *(None,) * 12))
    assert plan.status == "unreachable"
    assert "500 states" in plan.reason


@pytest.mark.parametrize(
    ("facts", "desires"),
    [
        (("0",), (values("1"), None)),
        (("7", "0"), (values("1"), None)),
        (("0", "0"), (values("unknown"), None)),
        (("0", "0"), (values(), None)),
    ],
)
def test_facts_and_desires_that_the_model_does_not_have_are_refused(
    facts: tuple[str, ...], desires: tuple[frozenset[str] | None, ...]
) -> None:
    with pytest.raises(BadRequest):
        Planner(small(step("m", "a", "0", "1"), a=A, b=B)).plan(facts, desires)


def test_real_values_become_absent_other_and_wanted() -> None:
    facts, desires = classify(MODEL, {"image": "v1", "config": "absent"}, {"image": ["v2", "absent"], "config": ["c"]})
    position = list(MODEL.variables).index
    assert facts[position("image")] == "other"
    assert facts[position("config")] == "absent"
    assert desires[position("image")] == {"wanted", "absent"}
    assert desires[position("config")] == {"wanted"}
    with pytest.raises(BadRequest, match="no such state variable"):
        classify(MODEL, {"pwer": "on"}, {})


def test_a_class_that_was_met_before_is_looked_up_and_not_searched_for(planner: Planner) -> None:
    facts, desires = classify(MODEL, RUNNING, READY)
    planner.plan(facts, desires)
    with counted() as work:
        planner.plan(facts, desires)
    assert work.calls < 20


def test_a_node_without_a_configuration_lacks_one_from_the_moment_that_one_is_wanted(planner: Planner) -> None:
    place = list(MODEL.variables).index("config")
    facts, _ = classify(MODEL, RUNNING | {"config": "none"}, {"config": ["c1"]})
    assert facts[place] == "absent"
    assert plan_named(planner, RUNNING | {"workload": "out", "config": "none"}, READY).steps == (
        "configure",
        "join-workload",
    )
    column = VariableColumns(MODEL.variables["config"])
    column.grow(3)
    column.fact[:] = column.word_code("none")
    column.goal[1:] = [column.goal_code(["c1"]), column.goal_code(["none"])]
    symbols = [column.fact_class(code).symbol for code in column.fact_classes(np.arange(3)).tolist()]
    assert symbols == ["other", "absent", "wanted"], "as the engine sees many nodes at once"
    unwanted = {"image": ["v2"], "workload": ["in"]}
    assert plan_named(planner, RUNNING | {"workload": "out", "config": "none"}, unwanted).steps == ("join-workload",)
