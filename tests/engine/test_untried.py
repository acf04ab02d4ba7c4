"""An act that was refused before it touched a node: nobody failed, nothing is stopped, and it is not forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.engine.settings import EngineSettings
from support.pure_fleet import PureFleet

COUNT = 20
MISSING = "no such image: debian:12"


class Unready:
    """Has nothing to load, for as long as ``missing``."""

    name = "node"

    def __init__(self, fleet: PureFleet) -> None:
        self._real = fleet.drivers["node"]
        self.missing = True
        self.refused = 0

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        if self.missing and mutation.name == "load-image":
            self.refused += len(batch)
            return Outcomes.all(Outcome.UNTRIED, len(batch), MISSING)
        return await self._real.act(mutation, batch)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return await self._real.observe(variables, batch)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)


@pytest.fixture
def fleet() -> PureFleet:
    made = PureFleet(COUNT, settings=EngineSettings(stop_minimum=10))
    made.drivers["node"] = Unready(made)
    made.want(power="on", os="up", image="v1")
    made.run(400)
    return made


@pytest.mark.slow
def test_what_was_not_tried_is_no_failure_and_stops_nothing(fleet: PureFleet) -> None:
    assert fleet.engine.progress.failures.tolist() == [0] * COUNT
    assert not fleet.engine.progress.fault.any()
    assert all(breaker.stopped_since is None for breaker in fleet.engine.in_flight.breakers)
    assert fleet.state(0) == "waiting"


@pytest.mark.slow
def test_why_it_was_not_tried_is_told_once_and_shown_for_as_long_as_it_holds(fleet: PureFleet) -> None:
    fleet.run(1000)
    text = f"load-image was not tried: {MISSING}"
    assert fleet.history(0, "event").count(text) == 1
    assert f"last trouble: {text}" in fleet.why(0).lines
    assert fleet.fact(0, "personality") == "idle"


@pytest.mark.slow
def test_it_is_tried_again_seldom_by_itself_and_at_once_when_something_else_is_wanted(fleet: PureFleet) -> None:
    driver = fleet.drivers["node"]
    assert isinstance(driver, Unready)
    assert driver.refused <= 4 * COUNT
    driver.missing = False
    fleet.engine.renew_goal(fleet.nodes, fleet.now)
    fleet.converge(60)
    assert "last trouble" not in " ".join(fleet.why(0).lines)


@pytest.mark.slow
def test_another_step_that_comes_first_by_now_does_not_wait_for_what_was_not_tried(fleet: PureFleet) -> None:
    waits = fleet.engine.progress.not_before - fleet.now
    node = int(np.argmax(waits))
    assert waits[node] > 60
    fleet.sim.put(np.array([node]), now=fleet.now, power="off", os="down")
    fleet.engine.facts.schedule_look(np.array([node]), None, fleet.now)
    fleet.run(30)
    assert fleet.history(node, "power")[-1] == "on", "it is switched on at once"


@pytest.mark.slow
def test_a_stopped_mutation_whose_probes_were_not_tried_is_probed_again(fleet: PureFleet) -> None:
    number = fleet.engine.in_flight.numbers["load-image"]
    breaker = fleet.engine.in_flight.breakers[number]
    breaker.failed(fleet.now, range(COUNT))
    assert breaker.stopped_since is not None
    driver = fleet.drivers["node"]
    assert isinstance(driver, Unready)
    before = driver.refused
    fleet.run(1000)
    assert driver.refused > before
    driver.missing = False
    fleet.converge(2000)
