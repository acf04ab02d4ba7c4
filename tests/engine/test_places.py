"""How many nodes a rollout takes out of service at once, from the first step that does."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.driver import Batch, Driver, Outcomes
from strata.core.model import Budget, Layer, Model, Mutation
from strata.core.state import Outcome
from strata.engine.settings import EngineSettings
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.virtual.fleet.faults import Timing
from support.pure_fleet import HARDWARE, READY, PureFleet

QUICK = Timing(scale=0.1)


class Refusing:
    """A driver that refuses one step for the first ``count`` nodes, and does the rest."""

    def __init__(self, real: Driver, mutation: str, count: int) -> None:
        self.name = real.name
        self._real = real
        self._mutation = mutation
        self._count = count
        self.observe = real.observe
        self.permits = real.permits

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        if mutation.name != self._mutation:
            return await self._real.act(mutation, batch)
        bad = np.flatnonzero(batch.uids < self._count)
        good = np.flatnonzero(batch.uids >= self._count)
        codes = np.full(len(batch), Outcome.FAILED, dtype=np.int8)
        if len(good):
            codes[good] = (await self._real.act(mutation, batch.take(good))).codes
        return Outcomes(codes, dict.fromkeys(bad.tolist(), "no"))


def out_of_service(fleet: PureFleet) -> list[int]:
    """The nodes that the workload manager really does not give to jobs, or will not in a moment."""
    inside = fleet.sim.truth("workload", fleet.sim.all, fleet.now).values()
    return [node for node, value in enumerate(inside) if value != "in" or fleet.fact(node, "workload") == "out"]


def has_worked(fleet: PureFleet, image: str) -> None:
    """Have the last node run an image, so that no canary is needed for it."""
    last = len(fleet.sim.all) - 1
    fleet.want([last], image=image)
    assert fleet.run(5000, lambda: fleet.state(last) == "ready")


def roll_out(fleet: PureFleet, image: str, most: int, *, until: int | None = None) -> int:
    """Want another image of all; the most that were out at once, which must not be over ``most``."""
    fleet.want(image=image)
    seen = 0

    def done() -> bool:
        nonlocal seen
        seen = max(seen, len(out_of_service(fleet)))
        assert seen <= most, f"{seen} nodes out of service at {fleet.now} s"
        return fleet.all_ready() or (until is not None and seen >= until)

    assert fleet.run(20_000, done)
    return seen


@pytest.mark.slow
def test_a_rollout_takes_no_more_nodes_out_of_the_workload_than_the_disruption_budget_lets_switch() -> None:
    fleet = PureFleet(252, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    assert roll_out(fleet, "v2", most=25) == 25
    way = ["leave-workload", "switch-image", "configure", "join-workload"]
    assert all(fleet.acts_on(node)[-4:] == way for node in range(252))


@pytest.mark.slow
def test_a_node_that_waits_for_its_turn_in_a_rollout_goes_on_with_its_work_and_says_what_it_waits_for() -> None:
    fleet = PureFleet(30, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    has_worked(fleet, "v2")
    roll_out(fleet, "v2", most=3, until=3)
    waiting = next(node for node in range(30) if node not in out_of_service(fleet))
    assert fleet.state(waiting) == "waiting"
    assert [blocker.name for blocker in fleet.why(waiting).blockers] == ["disruption"]
    assert fleet.fact(waiting, "workload") == "in"


@pytest.mark.slow
def test_a_controller_that_starts_in_the_middle_of_a_rollout_counts_who_is_out_already() -> None:
    fleet = PureFleet(252, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    for image in ("v2", "v3", "v4"):
        roll_out(fleet, image, most=25, until=25)
        fleet.restart()
        roll_out(fleet, image, most=25)
    assert fleet.all_ready()


@pytest.mark.slow
def test_who_drains_for_an_act_that_was_begun_before_a_restart_has_its_place() -> None:
    fleet = PureFleet(40, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    has_worked(fleet, "v2")
    done = len(fleet.acts)
    fleet.want(image="v2")
    assert fleet.run(60, lambda: any(act.mutation == "leave-workload" for _, act in fleet.acts[done:]))
    begun = next(act.nodes for _, act in fleet.acts[done:] if act.mutation == "leave-workload")
    assert len(begun) == 4
    fleet.restart({"leave-workload": begun.tolist()})
    roll_out(fleet, "v2", most=4)


@pytest.mark.slow
def test_nodes_that_break_in_a_rollout_keep_their_places_and_slow_it_down_but_do_not_end_it() -> None:
    fleet = PureFleet(40, timing=QUICK, settings=EngineSettings(fault_retry=0, stop_minimum=100))
    fleet.want(**READY)
    fleet.converge()
    has_worked(fleet, "v2")
    fleet.drivers["node"] = Refusing(fleet.drivers["node"], "switch-image", 4)
    fleet.want(image="v2")
    broken = {0, 1, 2, 3}

    def done() -> bool:
        well = [node for node in out_of_service(fleet) if node not in broken]
        stopped = [node for node in broken if fleet.state(node) == "faulted"]
        assert len(well) <= 4
        assert len(stopped) < 4 or len(well) <= 1, "one at a time where every place is held by a broken node"
        return all(fleet.state(node) == "ready" for node in range(4, 40))

    assert fleet.run(50_000, done)


@pytest.mark.slow
def test_nodes_that_were_broken_before_keep_no_rollout_from_anything() -> None:
    fleet = PureFleet(30, timing=QUICK, settings=EngineSettings(fault_retry=0))
    fleet.drivers["bmc"] = Refusing(fleet.drivers["bmc"], "power-on", 4)
    fleet.want(**READY)
    assert fleet.run(5000, lambda: all(fleet.state(node) == "ready" for node in range(4, 30)))
    assert fleet.run(5000, lambda: fleet.state(0) == "faulted")
    has_worked(fleet, "v2")
    done = len(fleet.acts)
    fleet.want(list(range(4, 30)), image="v2")
    assert fleet.run(5000, lambda: all(fleet.state(node) == "ready" for node in range(4, 30)))
    drained = [len(act.nodes) for _, act in fleet.acts[done:] if act.mutation == "leave-workload"]
    assert drained[0] == 3


@pytest.mark.slow
def test_a_budget_of_what_is_unavailable_counts_who_is_about_to_leave_the_workload() -> None:
    more = Layer(budgets=(Budget(name="away", destructive_only=True, unavailable=True, limit=2),))
    fleet = PureFleet(12, timing=QUICK, model=Model.of(_without_budgets(), PROVISIONING, PLATFORM, more))
    fleet.want(**READY)
    fleet.converge()
    assert roll_out(fleet, "v2", most=2) == 2


def _without_budgets() -> Layer:
    return Layer(variables=HARDWARE.variables, mutations=HARDWARE.mutations, guards=HARDWARE.guards)


@pytest.mark.slow
def test_more_nodes_out_than_may_be_with_different_steps_ahead_do_not_wait_for_each_other() -> None:
    fleet = PureFleet(10, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    fleet.want(workload="out")
    fleet.converge()
    fleet.want([0, 1, 2], image="v2", workload="in")
    fleet.want([3, 4, 5], power="off", os="", image="", personality="", config="", workload="")
    fleet.want([6, 7, 8, 9], workload="in")
    fleet.wanted.clear()
    desires = {name: (column.goal.copy(), list(column.goals)) for name, column in fleet.engine.table.columns.items()}
    fleet.restart()
    for name, (codes, goals) in desires.items():
        fleet.engine.set_goal(name, fleet.nodes, goals, codes[fleet.nodes].astype(np.int64))
    fleet.converge(5000)


def limited(fleet: PureFleet, most: int) -> None:
    """Let at most so many of the first twenty nodes be out of service, as a rollout does."""
    keys = np.where(fleet.nodes < 20, 0, -1).astype(np.int32)
    fleet.engine.admission.budgets.set_buckets("rollouts", [keys], fleet.now, most=[np.array([float(most)])])


@pytest.mark.slow
def test_a_limit_that_was_set_meanwhile_holds_for_every_change_to_its_nodes_and_for_no_others() -> None:
    fleet = PureFleet(100, timing=QUICK)
    fleet.want(**READY)
    fleet.converge()
    has_worked(fleet, "v2")
    limited(fleet, 2)
    fleet.want(image="v2")
    inside = outside = 0

    def done() -> bool:
        nonlocal inside, outside
        out = out_of_service(fleet)
        inside = max(inside, sum(node < 20 for node in out))
        outside = max(outside, len(out))
        return fleet.all_ready()

    assert fleet.run(20_000, done)
    assert (inside, outside) == (2, 10)


@pytest.mark.slow
def test_nobody_goes_beyond_a_limit_in_the_stead_of_nodes_that_failed() -> None:
    fleet = PureFleet(40, timing=QUICK, settings=EngineSettings(fault_retry=0))
    fleet.want(**READY)
    fleet.converge()
    has_worked(fleet, "v2")
    limited(fleet, 2)
    fleet.drivers["node"] = Refusing(fleet.drivers["node"], "switch-image", 2)
    fleet.want(range(2), image="v2")
    assert fleet.run(5000, lambda: [fleet.state(node) for node in range(2)] == ["faulted", "faulted"])
    fleet.want(range(2, 40), image="v2")
    # Those outside go on, and nobody who cannot begin keeps the room of the fleet's own budget from them.
    assert fleet.run(5000, lambda: all(fleet.state(node) == "ready" for node in range(20, 40)))
    assert [node for node in out_of_service(fleet) if node < 20] == [0, 1]
    waiting = fleet.why(7)
    assert [blocker.name for blocker in waiting.blockers] == ["rollouts"]
    limited(fleet, 3)
    assert fleet.run(5000, lambda: all(fleet.state(node) == "ready" for node in range(2, 20)))
