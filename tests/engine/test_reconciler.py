"""What the engine does about a fleet, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Budget, Layer, Mutation
from strata.core.state import Outcome
from strata.engine.effects import Answered, Done, Seen
from strata.engine.settings import EngineSettings
from strata.virtual.fleet.faults import Faults, Timing
from support.pure_fleet import READY, PureFleet
from support.work import counted

THE_WAY = ["power-on", "boot", "enrol", "load-image", "start-personality", "configure", "join-workload"]

QUICK = Timing(scale=0.1)


class Deaf:
    """A device that takes a step and loses the reply, or takes it and does nothing."""

    name = "bmc"

    def __init__(self, fleet: PureFleet, *, drop: int = 0, ignore: int = 0) -> None:
        self._real = fleet.drivers["bmc"]
        self._drop, self._ignore = drop, ignore
        self.taken: list[str] = []

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        self.taken.append(mutation.name)
        if self._ignore:
            self._ignore -= 1
            return Outcomes.all(Outcome.DONE, len(batch))
        outcomes = await self._real.act(mutation, batch)
        if self._drop:
            self._drop -= 1
            return Outcomes.all(Outcome.UNKNOWN, len(batch), "timed out")
        return outcomes

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return await self._real.observe(variables, batch)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)


@pytest.mark.slow
def test_nodes_go_from_off_to_ready_by_the_cheapest_way() -> None:
    fleet = PureFleet(20)
    fleet.want(**READY)
    fleet.converge()
    assert all(fleet.acts_on(node) == THE_WAY for node in range(20))


@pytest.mark.slow
def test_a_node_at_its_goal_is_left_alone() -> None:
    fleet = PureFleet(5)
    fleet.want(**READY)
    fleet.converge()
    done = len(fleet.acts)
    fleet.run(3600)
    assert len(fleet.acts) == done
    assert fleet.all_ready()


def test_what_a_driver_saw_of_many_nodes_is_taken_in_together() -> None:
    calls = []
    for batch in (1000, 20):
        fleet = PureFleet(1000, settings=EngineSettings(look_batch=batch))
        fleet.step()
        assert len(fleet.inputs) == len(fleet.engine.facts.observers) * 1000 / batch
        with counted() as work:
            fleet.engine.step(fleet.now, fleet.inputs)
        calls.append(work.calls)
    assert calls[1] < 5 * calls[0], "fifty times as many looks are not fifty times as much work"


def test_nothing_is_done_before_the_facts_were_seen() -> None:
    fleet = PureFleet(3)
    fleet.want(**READY)
    first = fleet.step()
    assert not first.acts
    assert {look.driver for look in first.looks} == set(fleet.engine.facts.observers)


def test_a_lost_reply_is_observed_before_it_is_retried() -> None:
    fleet = PureFleet(1)
    deaf = fleet.drivers["bmc"] = Deaf(fleet, drop=1)
    fleet.want(power="on")
    fleet.converge()
    assert deaf.taken == ["power-on"]


@pytest.mark.slow
def test_a_device_that_says_yes_and_does_nothing_ends_in_a_named_fault() -> None:
    fleet = PureFleet(1, settings=EngineSettings(fault_retry=0))
    deaf = fleet.drivers["bmc"] = Deaf(fleet, ignore=99)
    fleet.want(power="on")
    fleet.run(7200)
    assert deaf.taken == ["power-on"] * 3
    assert fleet.state(0) == "faulted"
    assert "accepted, but power is still off after 120 s" in fleet.why(0).blockers[0].name


@pytest.mark.slow
def test_a_faulted_node_is_tried_once_more_after_a_long_while() -> None:
    fleet = PureFleet(1)
    deaf = fleet.drivers["bmc"] = Deaf(fleet, ignore=3)
    fleet.want(power="on")
    fleet.run(1200)
    assert fleet.state(0) == "faulted"
    fleet.converge(3600)
    assert len(deaf.taken) == 4


@pytest.mark.slow
def test_a_new_desire_clears_a_fault() -> None:
    fleet = PureFleet(1, settings=EngineSettings(fault_retry=0))
    fleet.drivers["bmc"] = Deaf(fleet, ignore=3)
    fleet.want(power="on")
    fleet.run(2000)
    assert fleet.state(0) == "faulted"
    fleet.want(os="up")
    fleet.converge()


class Stubborn:
    """Refuses one step until told otherwise; everything else is done."""

    def __init__(self, fleet: PureFleet, driver: str, step: str) -> None:
        self.name = driver
        self._real = fleet.drivers[driver]
        self.step = step

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        if mutation.name == self.step:
            return Outcomes.all(Outcome.FAILED, len(batch), "no")
        return await self._real.act(mutation, batch)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return await self._real.observe(variables, batch)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)


def test_a_node_whose_failed_step_came_about_by_itself_goes_on_at_once() -> None:
    fleet = PureFleet(2, settings=EngineSettings(fault_retry=1e6))
    fleet.drivers["node"] = Stubborn(fleet, "node", "boot")
    fleet.want(**READY)
    assert fleet.run(300, lambda: [fleet.state(node) for node in (0, 1)] == ["faulted"] * 2)
    fleet.sim.put(np.array([0]), now=fleet.now, os="up", identity="none", image="absent", personality="idle")
    assert fleet.run(300, lambda: fleet.state(0) == "ready"), fleet.why(0)
    assert fleet.acts_on(0)[4:] == THE_WAY[2:], "power-on, boot three times, and then what follows a boot"
    assert fleet.history(0, "event")[-2:] == ["fault: boot failed: no", "fault cleared: os is up"]
    assert fleet.state(1) == "faulted", "what has not come about is in the way still"


def test_a_node_in_back_off_whose_failed_step_came_about_does_not_wait_for_its_end() -> None:
    fleet = PureFleet(1, settings=EngineSettings(backoff=10_000, longest_backoff=10_000))
    fleet.drivers["node"] = Stubborn(fleet, "node", "boot")
    fleet.want(**READY)
    assert fleet.run(300, lambda: fleet.state(0) == "waiting")
    fleet.sim.put(np.array([0]), now=fleet.now, os="up", identity="none", image="absent", personality="idle")
    assert fleet.run(300, lambda: fleet.state(0) == "ready"), fleet.why(0)
    assert fleet.acts_on(0) == THE_WAY


@pytest.mark.slow
def test_back_off_grows_and_is_jittered() -> None:
    settings = EngineSettings(failures_to_fault=6, fault_retry=0, stop_minimum=10_000)
    fleet = PureFleet(40, settings=settings, faults=Faults(refused=1.0))
    fleet.want(power="on")
    fleet.run(3600)
    by_node = [[when for when, act in fleet.acts if node in act.nodes] for node in range(40)]
    gaps = np.diff(np.array(by_node), axis=1)
    assert gaps.shape == (40, 5)
    assert (gaps[:, 4] > 4 * gaps[:, 0]).all()
    assert len(np.unique(np.round(gaps[:, 0], 1))) > 5


@pytest.mark.slow
def test_power_loss_heals() -> None:
    fleet = PureFleet(10)
    fleet.want(**READY)
    fleet.converge()
    fleet.sim.power_loss(np.array([3]), now=fleet.now)
    assert fleet.run(200, lambda: fleet.state(3) != "ready")
    fleet.converge()
    assert fleet.acts_on(3) == THE_WAY * 2
    assert fleet.acts_on(4) == THE_WAY


@pytest.mark.slow
def test_a_dead_agent_on_a_powered_node_heals_by_a_power_cycle() -> None:
    fleet = PureFleet(10)
    fleet.want(**READY)
    fleet.converge()
    fleet.sim.hang(np.array([2]), now=fleet.now)
    assert fleet.run(300, lambda: fleet.state(2) != "ready")
    fleet.converge(2000)
    healing = fleet.acts_on(2)[len(THE_WAY) :]
    assert healing[-len(THE_WAY) - 1 :] == ["power-off", *THE_WAY]


@pytest.mark.slow
def test_a_node_with_a_running_job_is_not_powered_off() -> None:
    fleet = PureFleet(4)
    fleet.want(**READY)
    fleet.converge()
    fleet.sim.jobs.run(np.array([1]), until=fleet.now + 900)
    fleet.sim.kill_agent(np.array([1]), now=fleet.now)
    fleet.run(600)
    assert "power-off" not in fleet.acts_on(1)
    fleet.converge(3000)
    assert "power-off" in fleet.acts_on(1)


def test_a_guard_that_says_no_is_named() -> None:
    fleet = PureFleet(2, settings=EngineSettings(refresh=0.5))
    fleet.want(power="on", os="up")
    fleet.converge()
    fleet.sim.jobs.run(np.array([0]), until=1e9)
    fleet.want(power="off", os="")
    fleet.run(300)
    why = fleet.why(0)
    assert fleet.state(0) == "waiting"
    assert [(b.kind, b.name) for b in why.blockers] == [("guard", "no-running-job")]
    assert "a job runs" in why.blockers[0].detail
    assert fleet.fact(1, "power") == "off"


@pytest.mark.slow
def test_a_boot_loop_stops_in_a_named_fault() -> None:
    fleet = PureFleet(1, settings=EngineSettings(fault_retry=0), timing=QUICK)
    fleet.want(**READY)
    for _ in range(12):
        fleet.run(600, fleet.all_ready)
        if not fleet.all_ready():
            break
        fleet.run(5)
        fleet.sim.panic(np.array([0]), now=fleet.now)
        fleet.run(600, lambda: fleet.state(0) != "ready")
    assert fleet.state(0) == "faulted"
    assert "flapping: fell from its goal 4 times" in fleet.why(0).blockers[0].name


@pytest.mark.slow
def test_one_relapse_after_a_long_good_time_is_no_flapping() -> None:
    fleet = PureFleet(1, timing=QUICK)
    fleet.want(**READY)
    for _ in range(8):
        fleet.converge()
        fleet.run(2000)
        fleet.sim.power_loss(np.array([0]), now=fleet.now)
        fleet.run(200, lambda: fleet.state(0) != "ready")
    fleet.converge()


@pytest.mark.slow
def test_nodes_that_differ_because_more_is_wanted_of_them_are_not_flapping() -> None:
    fleet = PureFleet(1, timing=QUICK)
    fleet.want(**READY)
    for _ in range(8):
        fleet.converge()
        fleet.engine.renew_goal(np.array([0]), fleet.now)
        fleet.sim.panic(np.array([0]), now=fleet.now)
        fleet.run(600, lambda: fleet.state(0) != "ready")
        assert fleet.state(0) == "converging"
    fleet.converge()


@pytest.mark.slow
def test_a_held_node_is_never_acted_on() -> None:
    fleet = PureFleet(3)
    fleet.brake([1], held=True)
    fleet.want(**READY)
    fleet.run(2000)
    assert fleet.acts_on(1) == []
    assert (fleet.state(0), fleet.state(1)) == ("ready", "held")
    assert fleet.why(1).blockers[0].kind == "hold"
    fleet.brake([1], held=False)
    fleet.converge()


@pytest.mark.slow
def test_a_frozen_node_starts_nothing_and_goes_on_when_thawed() -> None:
    fleet = PureFleet(3)
    fleet.want(**READY)
    fleet.run(40)
    fleet.brake([0, 1, 2], frozen=True)
    fleet.run(300)
    done = len(fleet.acts)
    fleet.run(3000)
    assert len(fleet.acts) == done
    assert fleet.state(0) == "frozen"
    fleet.brake([0, 1, 2], frozen=False)
    fleet.converge()


def test_an_act_is_withheld_from_a_node_that_was_held_after_the_decision() -> None:
    fleet = PureFleet(2)
    fleet.want(power="on")
    while not (effects := fleet.step()).acts:
        pass
    fleet.engine.set_brakes(np.array([1]), held=np.array([True]), frozen=np.array([False]))
    act = effects.acts[0]
    assert fleet.engine.may_begin(act.generation, act.nodes).tolist() == [True, False]


@pytest.mark.slow
def test_a_budget_limits_what_is_under_way_at_once() -> None:
    few = Layer(budgets=(Budget(name="few", mutations=("boot",), per="cabinet", limit=3),))
    fleet = PureFleet(20, more=few)
    fleet.bucket("few", lambda node: node % 2)
    fleet.want(**READY)
    most = 0
    while not fleet.all_ready() and fleet.now < 5000:
        fleet.run(5)
        booting = [
            n for n in range(20) if fleet.engine.progress.mutation[n] == list(fleet.model.mutations).index("boot")
        ]
        for bucket in (0, 1):
            most = max(most, sum(1 for n in booting if n % 2 == bucket))
    assert most == 3
    assert fleet.all_ready()


@pytest.mark.slow
def test_a_percentage_of_the_fleet_may_be_down_at_once() -> None:
    fleet = PureFleet(40)
    fleet.want(power="on", os="up")
    fleet.converge()
    fleet.want(power="off", os="")
    fleet.step()
    worst = 0
    while not fleet.all_ready() and fleet.now < 5000:
        fleet.run(1)
        worst = max(worst, int((fleet.engine.progress.phase != 0).sum()))
    assert 0 < worst <= 4  # the built-in budget: 10 % of the fleet
    assert fleet.all_ready()


def test_a_rate_limits_starts_a_second() -> None:
    slow = Layer(budgets=(Budget(name="slow", mutations=("power-on",), rate=2),))
    fleet = PureFleet(30, more=slow)
    fleet.want(power="on")
    fleet.converge()
    times = sorted(when for when, act in fleet.acts for _ in act.nodes)
    assert max(sum(1 for t in times if start <= t < start + 1) for start in times) <= 4
    assert times[-1] - times[0] >= 12


def test_waiting_for_a_budget_is_explained() -> None:
    one = Layer(budgets=(Budget(name="one-by-one", mutations=("power-on",), limit=1, doc="The breaker is weak."),))
    fleet = PureFleet(3, more=one)
    fleet.want(power="on")
    fleet.run(3)
    waiting = [node for node in range(3) if fleet.state(node) == "waiting"]
    assert len(waiting) == 2
    why = fleet.why(waiting[0])
    assert (why.blockers[0].kind, why.blockers[0].name) == ("budget", "one-by-one")
    assert "waits for budget one-by-one" in why.summary


@pytest.mark.slow
def test_the_failure_rate_stop_keeps_the_rest_of_the_fleet_from_harm() -> None:
    some = Layer(budgets=(Budget(name="few", mutations=("power-on",), limit=20),))
    fleet = PureFleet(500, more=some, faults=Faults(refused=1.0))
    fleet.want(power="on")
    fleet.run(120)
    tried = {int(node) for _, act in fleet.acts for node in act.nodes}
    assert len(tried) <= 20  # one batch
    untouched = next(node for node in range(500) if node not in tried)
    why = fleet.why(untouched)
    assert why.blockers[0].kind == "failure-rate stop"
    assert why.when is not None


@pytest.mark.slow
def test_a_stopped_mutation_is_probed_and_goes_on_when_the_fault_is_mended() -> None:
    fleet = PureFleet(100, faults=Faults(refused=1.0), settings=EngineSettings(fault_retry=600))
    fleet.want(power="on")
    fleet.run(200)
    assert not fleet.all_ready()
    fleet.sim.heal(now=fleet.now)
    fleet.converge(4000)


def test_a_stale_fact_is_unknown() -> None:
    fleet = PureFleet(2)
    fleet.want(**READY)
    fleet.converge()
    fleet.sim.set_faults(Faults(agent_silent=1.0, window=1e9), now=fleet.now)
    fleet.run(200)
    assert fleet.fact(0, "image") == "unknown"
    assert fleet.history(0, "image")[-1] == "unknown"


@pytest.mark.slow
def test_nothing_destructive_is_done_on_unknown() -> None:
    fleet = PureFleet(5)
    fleet.want(**READY)
    fleet.converge()
    done = len(fleet.acts)
    fleet.sim.set_faults(Faults(agent_silent=1.0, power_null=1.0, window=1e9), now=fleet.now)
    fleet.run(200)
    assert fleet.fact(0, "personality") == "unknown"
    fleet.want(image="v2")
    fleet.run(3600)
    assert all(act.mutation != "power-off" for _, act in fleet.acts[done:])
    assert all(act.mutation != "stop-personality" for _, act in fleet.acts[done:])


@pytest.mark.slow
def test_restarting_disturbs_nothing() -> None:
    fleet = PureFleet(10)
    fleet.want(**READY)
    fleet.converge()
    done = len(fleet.acts)
    fleet.restart()
    fleet.converge(10)
    assert len(fleet.acts) == done


def test_what_the_predecessor_began_is_waited_for_and_not_done_twice() -> None:
    fleet = PureFleet(4)
    fleet.want(**READY)
    fleet.run(500, lambda: any(act.mutation == "boot" for _, act in fleet.acts))
    begun = {
        m: [n for n in range(4) if fleet.engine.progress.mutation[n] == list(fleet.model.mutations).index(m)]
        for m in fleet.model.mutations
    }
    fleet.restart(resume={m: nodes for m, nodes in begun.items() if nodes})
    fleet.converge()
    assert all(fleet.acts_on(node) == THE_WAY for node in range(4))


@pytest.mark.slow
def test_an_image_is_changed_without_a_reboot() -> None:
    fleet = PureFleet(3)
    fleet.want(**READY)
    fleet.converge()
    fleet.want(image="v2", config="r2")
    fleet.converge()
    assert "boot" not in fleet.acts_on(0)[len(THE_WAY) :]
    assert "switch-image" in fleet.acts_on(0)[len(THE_WAY) :]
    assert fleet.fact(0, "image") == "v2"


@pytest.mark.slow
def test_a_desire_changed_a_hundred_times_converges_to_the_last() -> None:
    fleet = PureFleet(3)
    fleet.want(**READY)
    for number in range(100):
        fleet.want(image=f"v{number}")
        fleet.run(3)
    fleet.converge()
    assert fleet.fact(1, "image") == "v99"


def test_a_wish_goes_before_a_routine() -> None:
    one = Layer(budgets=(Budget(name="one", mutations=("power-on",), limit=1),))
    fleet = PureFleet(50, more=one, timing=Timing(scale=0.2))
    fleet.want(nodes=range(49), power="on")
    fleet.run(10)
    fleet.engine.progress.urgency[:] = 2
    fleet.want(nodes=[49], power="on")
    fleet.run(30, lambda: "power-on" in fleet.acts_on(49))
    later = next(when for when, act in fleet.acts if 49 in act.nodes)
    waiting_before = sum(1 for when, act in fleet.acts if when > later)
    assert waiting_before == 0


def test_an_unreachable_goal_says_what_is_missing_and_does_not_loop() -> None:
    fleet = PureFleet(1)
    fleet.want(os="hung")
    fleet.run(600)
    assert fleet.acts == []
    assert fleet.state(0) == "unreachable"
    assert "hung" in fleet.why(0).summary


def test_a_look_that_is_asked_for_while_another_is_under_way_is_not_lost() -> None:
    """The one under way may have seen the world before whatever made somebody ask."""
    fleet = PureFleet(1)
    fleet.want(power="off")
    fleet.run(2)
    sight = fleet.engine.facts
    sight.schedule_look(fleet.nodes, ("bmc",), fleet.now)
    first = [look for look in fleet.engine.facts.looks(fleet.now, fleet.nodes) if look.driver == "bmc"]
    assert len(first) == 1
    sight.schedule_look(fleet.nodes, ("bmc",), fleet.now)
    assert not [look for look in sight.looks(fleet.now, fleet.nodes) if look.driver == "bmc"]  # one at a time
    sight.seen(fleet.now, [Seen(first[0].id, {"power": Column.of(["off"])})])
    assert [look.nodes.tolist() for look in sight.looks(fleet.now, fleet.nodes) if look.driver == "bmc"] == [[0]]


@pytest.mark.slow
def test_a_lost_rack_comes_back_at_a_limited_rate() -> None:
    few = Layer(budgets=(Budget(name="few", mutations=("power-on",), per="cabinet", limit=8),))
    fleet = PureFleet(64, more=few, timing=QUICK)
    fleet.want(power="on", os="up")
    fleet.converge()
    fleet.sim.power_loss(np.arange(64), now=fleet.now)
    fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
    fleet.run(200, lambda: fleet.state(5) != "ready")
    worst = 0
    while not fleet.all_ready() and fleet.now < 5000:
        fleet.run(0.5)
        starting = fleet.engine.progress.mutation == list(fleet.model.mutations).index("power-on")
        worst = max(worst, int(starting.sum()))
    assert worst == 8
    assert fleet.all_ready()


def test_a_fenced_act_is_no_failure_and_is_not_hurried() -> None:
    fleet = PureFleet(2)
    fleet.want(power="on")
    while not (effects := fleet.step()).acts:
        pass
    act = effects.acts[0]
    fleet.inputs = [Done(act.generation, Outcomes.all(Outcome.FENCED, len(act.nodes)))]
    assert not fleet.step().acts
    assert fleet.engine.progress.failures.tolist() == [0, 0]
    assert "fenced off" in " ".join(fleet.why(0).lines)


def test_an_intent_that_could_not_be_written_is_not_an_effect() -> None:
    fleet = PureFleet(1)
    fleet.want(power="on")
    while not (effects := fleet.engine.step(fleet.now, fleet.inputs)).acts:
        fleet.inputs = []
        for look in effects.looks:
            fleet.inputs.append(Seen(look.id, fleet._observe(look.driver, look.variables, fleet._batch(look.nodes))))
        for ask in effects.asks:
            fleet.inputs.append(Answered(ask.id, [""] * len(ask.nodes)))
    generation = effects.acts[0].generation
    after = fleet.engine.step(fleet.now, [Done(generation, None, "disk full")])
    assert after.settled == [generation]
    assert fleet.engine.progress.failures[0] == 0
    assert "disk full" in " ".join(fleet.why(0).lines)
    fleet.inputs = []
    fleet.converge()


@pytest.mark.slow
def test_two_runs_of_one_seed_are_equal() -> None:
    def story(seed: int) -> list[tuple[float, str, list[int]]]:
        fleet = PureFleet(30, seed=seed, faults=Faults(refused=0.1, reply_lost=0.1, boot_hangs=0.05))
        fleet.want(**READY)
        fleet.run(900)
        return [(when, act.mutation, act.nodes.tolist()) for when, act in fleet.acts]

    assert story(7) == story(7)
    assert story(7) != story(8)


@pytest.mark.slow
def test_a_change_to_one_node_goes_first_during_a_resync_of_the_fleet() -> None:
    fleet = PureFleet(20_000)
    fleet.want(power="off")
    fleet.run(2)
    fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
    fleet.engine.progress.due[:] = fleet.now
    fleet.want(nodes=[777], power="on")
    assert [ask.nodes.tolist() for ask in fleet.step().asks] == [[777]]
    effects = fleet.step()
    assert [act.nodes.tolist() for act in effects.acts] == [[777]]
