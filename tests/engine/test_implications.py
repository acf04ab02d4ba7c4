"""Facts that prove others, and goals of which only a part can be had: what can be done is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Layer, Model, Mutation, Variable, values
from strata.engine.effects import Told
from strata.engine.faults import EVENT
from strata.engine.planner import Planner, classify
from strata.engine.reconciler import Engine
from support.pure_fleet import BUILT_IN, READY, PureFleet

SILENT = "its BMC does not answer"
AGED = 200.0
"""Seconds after which a fact that nobody saw again is unknown for sure."""


def ready(count: int = 1, **more: Layer) -> PureFleet:
    fleet = PureFleet(count, **more)  # type: ignore[arg-type]
    fleet.want(**READY)
    fleet.converge()
    return fleet


def with_dead_bmc(count: int = 1, **more: Layer) -> PureFleet:
    """Node 0 is at work, and its BMC has been dead for longer than a fact lasts."""
    fleet = ready(count, **more)
    fleet.sim.bmc_dead[0] = True
    fleet.run(AGED)
    return fleet


def source(fleet: PureFleet, variable: str) -> str:
    column = fleet.engine.table.columns[variable]
    return column.sources[column.source[0]]


@pytest.mark.slow
def test_a_dead_bmc_does_not_stop_a_change_that_needs_no_power_step() -> None:
    fleet = with_dead_bmc(2)
    assert fleet.state(0) == "ready"
    assert (fleet.fact(0, "power"), source(fleet, "power")) == ("on", "implied by os")
    done = len(fleet.acts_on(0))
    fleet.want([0], image="v2")
    assert fleet.run(400, lambda: fleet.fact(0, "image") == "v2" and fleet.state(0) == "ready")
    assert fleet.acts_on(0)[done:] == ["leave-workload", "switch-image", "configure", "join-workload"]
    assert fleet.history(0, "power") == ["off", "on"], "what is on all the time is no news"


@pytest.mark.slow
def test_a_ready_node_says_whose_bmc_is_silent_and_how_its_power_is_known() -> None:
    fleet = with_dead_bmc()
    (line,) = fleet.why(0).lines
    assert line.startswith("bmc has not seen power for ")
    assert line.endswith(f" s: {SILENT} (power is on, implied by os)")
    fleet.sim.bmc_dead[0] = False
    assert fleet.run(120, lambda: source(fleet, "power") == "bmc")
    assert fleet.why(0).lines == []
    assert fleet.engine.facts.silence("power", 0) is None


@pytest.mark.slow
def test_what_is_implied_is_as_old_as_its_proof_and_ends_with_it() -> None:
    fleet = with_dead_bmc()
    power, os = (fleet.engine.table.columns[name] for name in ("power", "os"))
    assert power.seen[0] == os.seen[0]
    fleet.run(60)
    assert power.seen[0] == os.seen[0]
    blind = fleet.drivers["node"] = Blind(fleet.drivers["node"])
    fleet.run(AGED)
    assert blind.looks
    assert (fleet.fact(0, "os"), fleet.fact(0, "power")) == ("unknown", "unknown")
    assert fleet.history(0, "power")[-1] == "unknown"


@pytest.mark.slow
def test_no_step_starts_from_what_is_only_implied_and_why_names_the_silent_bmc() -> None:
    fleet = with_dead_bmc()
    done = len(fleet.acts_on(0))
    fleet.want([0], **dict.fromkeys(READY, ""))
    fleet.want([0], power="off")
    fleet.run(AGED)
    assert "power-off" not in fleet.acts_on(0)[done:]
    assert fleet.state(0) == "unreachable"
    why = fleet.why(0)
    assert why.summary.startswith("There is no way to its goal: bmc has not seen power for ")
    assert why.summary.endswith(f" s: {SILENT}.")
    assert any(line.startswith("power is on, implied by os") and "wanted is off" in line for line in why.lines)
    fleet.sim.bmc_dead[0] = False
    fleet.converge()
    assert fleet.fact(0, "power") == "off"


@pytest.mark.slow
def test_power_that_is_unknown_is_blamed_on_the_bmc_and_its_last_error() -> None:
    fleet = PureFleet(1)
    fleet.sim.bmc_dead[0] = True
    fleet.want(power="on", os="up")
    fleet.run(120)
    assert fleet.fact(0, "power") == "unknown", "an OS that is down proves nothing"
    assert fleet.state(0) == "unreachable"
    assert f"s: {SILENT}." in fleet.why(0).summary
    assert "no mutation starts" not in fleet.why(0).summary


@pytest.mark.slow
def test_what_the_bmc_sees_counts_more_than_what_is_implied() -> None:
    fleet = with_dead_bmc()
    fleet.sim.bmc_dead[0] = False
    fleet.sim.power_loss(np.array([0]), now=fleet.now)
    assert fleet.run(120, lambda: "off" in fleet.history(0, "power")[2:])
    fleet.converge()
    assert fleet.acts_on(0)[-7] == "power-on"


@pytest.mark.slow
def test_a_new_leader_looks_at_what_is_implied_before_it_gives_up() -> None:
    fleet = ready()
    for driver in ("bmc", "node", "workload"):
        fleet.drivers[driver] = Late(fleet.drivers[driver], 3 if driver == "bmc" else 0)
    fleet.restart()
    fleet.want(**dict.fromkeys(READY, ""))
    fleet.want(power="off")
    fleet.converge()
    assert fleet.fact(0, "power") == "off"


def test_proofs_that_contradict_each_other_prove_nothing() -> None:
    engine = Engine(
        Model.of(
            Layer(
                variables=(
                    Variable(name="p", values=("a", "b"), observer="eye"),
                    Variable(name="x", values=("0", "1"), lost_when={"p": values("b")}, implies={"1": {"p": "a"}}),
                    Variable(name="y", values=("0", "1"), lost_when={"p": values("a")}, implies={"1": {"p": "b"}}),
                )
            )
        )
    )
    engine.lead(0, 1, 0.0)
    engine.add(np.arange(2), np.zeros(2, dtype=np.int32), 0.0)
    engine.step(1.0, [Told(np.arange(2), {"x": Column.of(["1", "1"])}, "x")])
    assert engine.table.columns["p"].fact.tolist() == [1, 1]
    engine.step(2.0, [Told(np.array([0]), {"y": Column.of(["1"])}, "y")])
    assert engine.table.columns["p"].fact.tolist() == [0, 1]


def test_what_is_proved_can_prove_something_in_turn() -> None:
    engine = Engine(
        Model.of(
            Layer(
                variables=(
                    Variable(name="p", values=("a", "b"), ages_out_after=5),
                    Variable(
                        name="q",
                        values=("a", "b"),
                        ages_out_after=5,
                        lost_when={"p": values("b")},
                        implies={"a": {"p": "a"}},
                    ),
                    Variable(
                        name="r",
                        values=("a", "b"),
                        ages_out_after=50,
                        lost_when={"q": values("b")},
                        implies={"a": {"q": "a"}},
                    ),
                )
            )
        )
    )
    engine.lead(0, 1, 0.0)
    engine.add(np.arange(1), np.zeros(1, dtype=np.int32), 0.0)
    engine.step(1.0, [Told(np.arange(1), {"r": Column.of(["a"])}, "agent")])
    engine.step(30.0)
    assert [column.fact[0] for column in engine.table.columns.values()] == [1, 1, 1], "for as long as r lasts"
    engine.step(60.0)
    assert [column.fact[0] for column in engine.table.columns.values()] == [0, 0, 0]


# ---- a part of the goal ----

FAN = Layer(
    variables=(Variable(name="fan", values=("slow", "fast"), ages_out_after=90, observer="fans"),),
    mutations=(
        Mutation(name="hurry", variable="fan", start=values("slow"), to="fast", driver="fans"),
        Mutation(name="calm", variable="fan", start=values("fast"), to="slow", driver="fans"),
    ),
)


@pytest.mark.slow
def test_what_cannot_be_had_does_not_stop_what_can() -> None:
    fleet = PureFleet(1, more=FAN)
    fleet.drivers["fans"] = Blind(fleet.drivers["bmc"], "the fan board is gone")
    fleet.want(**READY, fan="fast")
    assert fleet.run(400, lambda: fleet.fact(0, "workload") == "in")
    fleet.run(AGED)
    assert all(fleet.fact(0, name) == value for name, value in READY.items())
    assert fleet.state(0) == "unreachable"
    assert "fans has not seen fan for" in fleet.why(0).summary
    assert "the fan board is gone" in fleet.why(0).summary


@pytest.mark.slow
def test_why_tells_on_the_way_to_a_part_of_the_goal_what_is_left_out() -> None:
    fleet = PureFleet(1, more=FAN)
    fleet.drivers["fans"] = Blind(fleet.drivers["bmc"], "the fan board is gone")
    fleet.want(power="on", fan="fast")
    fleet.brake([0], held=True)
    fleet.run(30)
    why = fleet.why(0)
    assert why.mutation == "power-on"
    assert any(line.startswith("only to a part of its goal: fans has not seen fan") for line in why.lines)


@pytest.mark.slow
def test_another_boot_profile_waits_for_the_bmc_and_another_image_does_not() -> None:
    fleet = with_dead_bmc()
    done = len(fleet.acts_on(0))
    fleet.want([0], minos="new", image="v2")
    fleet.run(400)
    assert fleet.fact(0, "image") == "v2"
    assert set(fleet.acts_on(0)[done:]).isdisjoint({"power-off", "power-on", "boot"})
    assert fleet.state(0) == "unreachable"
    assert fleet.history(0, EVENT) == []
    fleet.sim.bmc_dead[0] = False
    assert fleet.run(1000, lambda: fleet.state(0) == "ready"), fleet.why(0)
    assert "power-off" in fleet.acts_on(0)[done:]


def test_the_way_to_a_part_changes_nothing_of_what_it_leaves_out() -> None:
    """Whether the image is there is not known: it must not be lost for the sake of another desire."""
    model = Model.of(
        Layer(
            variables=(
                Variable(name="power", values=("off", "on")),
                Variable(name="image", open=True, lost_when={"power": values("off")}),
                Variable(name="light", values=("off", "on")),
            ),
            mutations=(
                Mutation(name="cut", variable="power", start=values("on"), to="off"),
                Mutation(name="load", variable="image", start=values("absent"), to="wanted"),
                Mutation(name="shine", variable="light", start=values("off"), to="on"),
            ),
        )
    )

    def steps(**desires: str) -> tuple[str, tuple[str, ...]]:
        facts, goals = classify(model, {"power": "on", "light": "off"}, {k: [v] for k, v in desires.items()})
        plan = Planner(model).advance(facts, goals)
        return plan.status, plan.steps

    assert steps(image="v1", power="off") == ("unreachable", ())
    assert steps(image="v1", light="on") == ("plan", ("shine",))
    assert steps(image="v1") == ("unreachable", ())


def test_desires_that_exclude_each_other_are_not_fulfilled_in_part() -> None:
    facts, goals = classify(BUILT_IN, {"power": "on", "os": "up"}, {"power": ["off"], "os": ["up"]})
    plan = Planner(BUILT_IN).advance(facts, goals, frozenset(BUILT_IN.variables))
    assert plan.status == "unreachable"


def test_a_plan_looks_at_what_is_implied_only_where_it_must_be_seen() -> None:
    planner = Planner(BUILT_IN)
    known = {"power": "on", "os": "up", "identity": "issued", "image": "v1", "personality": "idle"}

    def plan(seen: frozenset[str] = frozenset(), **desires: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        facts, goals = classify(BUILT_IN, known, {k: [v] for k, v in desires.items()})
        found = planner.plan(facts, goals, seen, frozenset({"power"}))
        return found.status, found.steps, found.observe

    assert plan(power="on") == ("done", (), ())
    assert plan(image="v2") == ("plan", ("load-image",), ())
    assert plan(power="off")[::2] == ("observe", ("power",))
    assert plan(frozenset({"power", "workload"}), power="off")[0] == "unreachable"


# ---- what a model may declare ----

POWER = Variable(name="power", values=("off", "on"))


def variable(name: str = "os", **more: object) -> Variable:
    given = {"values": ("down", "up"), "lost_when": {"power": values("off")}} | more
    return Variable(name=name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ((variable(implies={"up": {"fuel": "on"}}),), "no such variable: fuel"),
        ((variable(implies={"up": {"power": "high"}}),), "power has no value 'high'"),
        ((variable(implies={"glad": {"power": "on"}}),), "os has no value 'glad'"),
        ((variable(implies={"up": {"power": "off"}}),), "os is lost when power is that"),
        ((variable(lost_when={}, implies={"up": {"power": "on"}}),), "os outlives power=off"),
        ((variable(implies={"up": {"os": "up"}}),), "os imply each other in a circle"),
        (
            (
                variable(lost_when={"b": values("down")}, implies={"up": {"b": "up"}}),
                variable("b", lost_when={"os": values("down")}, implies={"up": {"os": "up"}}),
            ),
            "os, b imply each other in a circle",
        ),
        (
            (
                variable(
                    lost_when={"b": values("down"), "power": values("off")}, implies={"up": {"b": "up", "power": "on"}}
                ),
                variable("b", lost_when={"power": values("on")}, implies={"up": {"power": "off"}}),
            ),
            "os",
        ),
        ((variable(open=True, values=(), implies={"wanted": {"power": "on"}}),), "it proves nothing"),
    ],
)
def test_an_implication_that_cannot_be_is_refused(variables: Sequence[Variable], words: str) -> None:
    with pytest.raises(BadRequest, match="variable os") as refused:
        Model.of(Layer(variables=(POWER, *variables)))
    assert words in str(refused.value)


def test_the_built_in_model_says_that_who_speaks_has_power_and_nothing_else() -> None:
    assert [tuple(rule) for rule in BUILT_IN.implications()] == [("os", "up", "power", "on")]


# ---- fakes ----


class Blind:
    """A driver that sees nothing any more, and says why."""

    name = "blind"

    def __init__(self, real: object, why: str = "") -> None:
        self._real = real
        self._why = why
        self.looks = 0

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        return await self._real.act(mutation, batch)  # type: ignore[attr-defined,no-any-return]

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self.looks += 1
        nothing = np.zeros(len(batch), dtype=np.int32)
        return {name: Column((), nothing, dict.fromkeys(range(len(batch)), self._why)) for name in variables}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)  # type: ignore[attr-defined,no-any-return]


class Late(Blind):
    """A driver whose first looks show nothing."""

    def __init__(self, real: object, looks: int) -> None:
        super().__init__(real, "not yet")
        self._left = looks

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        self._left -= 1
        if self._left >= 0:
            return await super().observe(variables, batch)
        return await self._real.observe(variables, batch)  # type: ignore[attr-defined,no-any-return]
