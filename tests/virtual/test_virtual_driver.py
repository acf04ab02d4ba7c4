"""The in-process driver: the model behind the engine's seam."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Driver
from strata.core.errors import BadRequest
from strata.core.model import Model
from strata.core.state import Outcome
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.virtual.fleet.driver import SimDriver, sim_drivers
from strata.virtual.fleet.faults import SECONDS, Timing
from strata.virtual.fleet.model import MUTATIONS, SEEN_BY, TARGETS, WORDS
from strata.virtual.fleet.nodes import SimNodes

MODEL = Model.of(HARDWARE, PROVISIONING, PLATFORM)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(nodes: SimNodes, **more: object) -> Batch:
    return Batch(names=nodes.names, uids=nodes.all + 1, **more)  # type: ignore[arg-type]


def test_the_simulator_knows_every_variable_and_mutation_of_the_built_in_model():
    assert set(MUTATIONS) == set(MODEL.mutations)
    for name, (variable, value) in TARGETS.items():
        mutation = MODEL.mutations[name]
        assert (mutation.variable, mutation.to) == (variable, value or "wanted")
    for variable in MODEL.variables.values():
        assert variable.name in SEEN_BY[variable.observer]
        assert variable.open or WORDS[variable.name] == variable.values


def test_every_mutation_of_the_built_in_model_takes_some_time():
    assert set(SECONDS) == set(MODEL.mutations)


async def test_the_drivers_bring_a_node_from_off_to_ready():
    nodes = SimNodes(4, timing=Timing(scale=0))
    drivers: dict[str, Driver] = dict(sim_drivers(nodes, Clock()))
    steps = ("power-on", "boot", "enrol", "load-image", "start-personality", "configure", "join-workload")
    for generation, step in enumerate(steps):
        mutation = MODEL.mutations[step]
        told = batch(
            nodes,
            goals={"image": Column.of(["a", "b", "a", "b"]), "config": Column.same("c", 4)},
            generation=generation,
        )
        outcomes = await drivers[mutation.driver].act(mutation, told)
        assert set(outcomes.codes.tolist()) == {Outcome.DONE}
    seen = await drivers["node"].observe(["os", "image", "config", "power"], batch(nodes))
    assert set(seen) == {"os", "image", "config"}
    assert seen["image"].values() == ["a", "b", "a", "b"]
    assert (await drivers["workload"].observe(["workload"], batch(nodes)))["workload"].values() == ["in"] * 4


async def test_nothing_begins_after_the_lead_ran_out():
    clock = Clock()
    nodes = SimNodes(2)
    driver = SimDriver("bmc", nodes, clock)
    clock.now = 10.0
    outcomes = await driver.act(MODEL.mutations["power-on"], batch(nodes, valid_until=9.9))
    assert outcomes.codes.tolist() == [Outcome.FENCED] * 2
    assert len(nodes.effects) == 0


async def test_a_failure_says_why():
    nodes = SimNodes(1)
    outcomes = await SimDriver("node", nodes, Clock()).act(MODEL.mutations["boot"], batch(nodes))
    assert outcomes.reasons == {0: "the node has no power"}


@pytest.mark.parametrize("by_uid", [False, True])
async def test_a_node_that_is_not_simulated_fails_and_is_not_seen(by_uid):
    nodes = SimNodes(1, timing=Timing(scale=0))
    driver = SimDriver("bmc", nodes, Clock(), uids=np.array([1]) if by_uid else None)
    told = Batch(names=["ghost", nodes.names[0], "wraith"], uids=np.array([0, 1, 99]))
    outcomes = await driver.act(MODEL.mutations["power-on"], told)
    assert outcomes.codes.tolist() == [Outcome.FAILED, Outcome.DONE, Outcome.FAILED]
    assert set(outcomes.reasons) == {0, 2}
    assert (await driver.observe(["power"], told))["power"].values() == ["unknown", "on", "unknown"]


async def test_the_guard_names_the_node_on_which_a_job_runs():
    nodes = SimNodes(3)
    nodes.jobs.run(np.array([1]), until=5)
    driver = SimDriver("workload", nodes, Clock())
    assert list(await driver.permits("no-running-job", batch(nodes))) == ["", "a job runs on n00002", ""]


async def test_a_guard_that_it_does_not_know_is_answered_with_no():
    nodes = SimNodes(1)
    assert all(await SimDriver("bmc", nodes, Clock()).permits("no-running-job", batch(nodes)))
    assert all(await SimDriver("workload", nodes, Clock()).permits("full-moon", batch(nodes)))


def test_there_is_no_other_simulated_driver():
    with pytest.raises(BadRequest, match="workload"):
        SimDriver("ipmi", SimNodes(1), Clock())
