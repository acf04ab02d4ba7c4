"""Steps that all succeed and lead nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Layer, Model, Mutation, Variable, values
from strata.core.state import Outcome
from strata.engine.modelcheck import check
from strata.engine.settings import EngineSettings
from strata.virtual.fleet.faults import Timing
from support.pure_fleet import READY, PureFleet

CIRCLE = Layer(
    variables=(
        Variable(name="key", values=("idle", "turned"), observer="site"),
        Variable(name="bios", open=True, observer="site"),
    ),
    mutations=(
        Mutation(name="turn", variable="key", start=values("idle"), to="turned", forgets=("bios",), driver="site"),
        Mutation(name="turn-back", variable="key", start=values("turned"), to="idle", driver="site"),
        Mutation(
            name="flash",
            variable="bios",
            start=values("unknown"),
            to="wanted",
            requires={"key": values("turned")},
            driver="site",
        ),
    ),
)
"""``flash`` starts only where nothing is known, and somebody looks before it does: it never starts."""


class Site:
    """Does what it is told at once, and sees what is."""

    name = "site"

    def __init__(self, count: int) -> None:
        self.key = ["idle"] * count
        self.acts: list[str] = []

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        self.acts += [mutation.name] * len(batch)
        for node in batch.uids.tolist():
            self.key[node] = mutation.to
        return Outcomes.all(Outcome.DONE, len(batch))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return {
            "key": Column.of(self.key[node] for node in batch.uids.tolist()),
            "bios": Column.same("v1", len(batch)),
        }

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        raise NotImplementedError


def fleet_of(count: int, settings: EngineSettings | None = None) -> tuple[PureFleet, Site]:
    fleet = PureFleet(count, model=Model.of(CIRCLE), settings=settings)
    site = fleet.drivers["site"] = Site(count)
    return fleet, site


@pytest.mark.slow
def test_a_chain_of_successes_that_comes_back_to_where_it_was_ends_in_a_fault_that_says_so() -> None:
    fleet, site = fleet_of(3, EngineSettings(fault_retry=0))
    fleet.want(bios="v2")
    fleet.run(3600)
    assert len(site.acts) / 3 < 25
    assert fleet.state(0) == "faulted"
    why = fleet.why(0)
    assert "going round in circles" in why.blockers[0].name
    assert "led back to where it began" in why.blockers[0].name


@pytest.mark.slow
def test_a_node_in_a_circle_is_tried_again_when_something_else_is_wanted_of_it() -> None:
    fleet, _ = fleet_of(1, EngineSettings(fault_retry=0))
    fleet.want(bios="v2")
    assert fleet.run(3600, lambda: fleet.state(0) == "faulted")
    fleet.want(bios="v1")
    fleet.converge()


@pytest.mark.slow
def test_the_same_steps_for_one_image_after_another_are_no_circle() -> None:
    fleet = PureFleet(4, timing=Timing(scale=0.1))
    fleet.want(**READY)
    fleet.converge()
    for image in ("v2", "v3", "v4", "v5", "v6", "v7"):
        fleet.want(image=image)
        fleet.converge()
    assert (fleet.engine.progress.relapses == 0).all()


@pytest.mark.slow
def test_a_node_that_dies_after_every_boot_before_it_is_ready_is_not_booted_for_ever() -> None:
    fleet = PureFleet(1, timing=Timing(scale=0.1), settings=EngineSettings(fault_retry=0))
    fleet.want(**READY)

    def dies() -> bool:
        if fleet.fact(0, "os") == "up":
            fleet.sim.power_loss(np.array([0]), now=fleet.now)
        return fleet.state(0) == "faulted"

    assert fleet.run(20_000, dies)
    assert fleet.acts_on(0).count("boot") < 12


def test_a_mutation_that_starts_only_from_unknown_of_a_variable_that_is_looked_at_is_warned_of() -> None:
    found = {(finding.level, finding.code, finding.where) for finding in check(Model.of(CIRCLE))}
    assert ("warning", "blind-start", "mutation flash") in found


def test_one_that_starts_from_unknown_where_nothing_can_be_known_is_not_warned_of() -> None:
    layer = Layer(
        variables=(
            Variable(name="power", values=("off", "on"), observer="bmc"),
            Variable(name="os", values=("up",), observer="node", lost_when={"power": values("off")}),
        ),
        mutations=(
            Mutation(name="power-on", variable="power", start=values("off"), to="on"),
            Mutation(name="power-off", variable="power", start=values("on"), to="off"),
            Mutation(
                name="wake",
                variable="os",
                start=values("unknown"),
                to="up",
                requires={"power": values("off")},
                sets={"power": "on"},
            ),
        ),
    )
    assert "blind-start" not in {finding.code for finding in check(Model.of(layer))}
