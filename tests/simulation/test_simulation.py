"""The whole controller under seeded faults, in virtual time: the promises hold, and their checks can fail."""

from __future__ import annotations

import msgspec
import pytest

from simulation.mechanisms import ALL
from simulation.network import Weather
from simulation.run import run_seed, story
from simulation.world import Plot
from strata.virtual.fleet.faults import Faults

ROUGH = Plot(
    nodes=12,
    controllers=2,
    weather=Weather(loss=0.05, delay=0.1),
    faults=Faults(duplicated=0.5, refused=0.1, drain_lies=0.3, power_losses=4, hangs=4, agent_deaths=4),
    crashes=40,
    pauses=60,
    job_share=0.7,
    site_nodes=9,
)
"""A bad day: enough of everything that each mechanism is needed."""
LYING = msgspec.structs.replace(
    ROUGH, faults=msgspec.structs.replace(ROUGH.faults, drain_lies=1.0), job_share=1.0, crashes=0, pauses=0
)
"""A day on which every node is said to be drained while its job runs on; controllers live, and so come to act on it."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 25))
def test_every_promise_holds_under_this_seed(seed: int) -> None:
    assert run_seed(seed).violations == []


REGRESSIONS = {
    3: "a shard taken in a request whose answer was lost was never led",
    4: "a controller whose member key could not be written was passed over by the baton",
    11: "a drain whose request was lost was waited for a day",
    14: "a node counted through an old intent was started beyond the site's power",
    20: "shards that a slow controller had let go of were led by nobody",
    58: "a late record of a former leader hid that a node was on",
    3339: "two controllers with different views of who leads had shares that summed to more than the whole",
    2039: "a row that two generations stood for was removed twice, and nothing was begun any more",
    647: "the world itself: a hold that was still on its way when all were released kept its node for ever",
    593: "a lead lost and regained between two steps forgot what was under way, and did it again",
    31: "an edit whose note in the history had the very moment of another's was refused",
    49: "nodes that were out of service with different steps ahead waited for each other",
    85: "what was under way when a shard was given back was counted by nobody",
}
"""Every seed that ever found a bug, and what it was."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_bug_that_was_found_stays_mended(seed: int) -> None:
    assert run_seed(seed).violations == [], REGRESSIONS[seed]


@pytest.mark.slow
def test_two_runs_of_one_seed_give_equal_logs() -> None:
    assert story(run_seed(5)) == story(run_seed(5))


OFF = {
    "durable": 1,
    "fencing": 2,
    "intents": 2,
    "guards": 3,
    "unknown_brake": 4,
    "holds": 5,
    "disruption_budget": 5,
    "site_budget": 6,
    "redaction": 7,
    "validation": 8,
    "audit": 9,
    "job_recovery": 10,
}
"""Mechanism → the promise that it keeps."""


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", OFF)
def test_the_check_fails_when_its_mechanism_is_switched_off(mechanism: str) -> None:
    without = msgspec.structs.replace(ALL, **{mechanism: False})
    plot = LYING if mechanism == "guards" else ROUGH
    for seed in (143, *range(100, 112)):
        broken = {promise for promise, _ in run_seed(seed, without, msgspec.structs.replace(plot)).violations}
        if OFF[mechanism] in broken:
            return
    pytest.fail(f"without {mechanism}, promise {OFF[mechanism]} held under a dozen seeds: its check cannot fail")


@pytest.mark.slow
def test_with_all_mechanisms_on_the_same_bad_days_break_nothing() -> None:
    for seed in range(100, 103):
        assert run_seed(seed, ALL, msgspec.structs.replace(ROUGH)).violations == []
    assert run_seed(102, ALL, msgspec.structs.replace(LYING)).violations == []
