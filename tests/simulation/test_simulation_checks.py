"""The checks of the promises can fail: each does when the mechanism that it watches is switched off."""

from __future__ import annotations

import msgspec
import pytest

from simulation.mechanisms import ALL
from simulation.network import Weather
from simulation.run import run_seed
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
SHOWN_BY = {"intents": 111, "guards": 104, "unknown_brake": 102, "disruption_budget": 102}
"""The seed that is tried first where it is not the usual one. It only saves time: the others are tried after it."""


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", OFF)
def test_the_check_fails_when_its_mechanism_is_switched_off(mechanism: str) -> None:
    without = msgspec.structs.replace(ALL, **{mechanism: False})
    plot = LYING if mechanism == "guards" else ROUGH
    for seed in (SHOWN_BY.get(mechanism, 143), *range(100, 112)):
        world = run_seed(seed, without, msgspec.structs.replace(plot), looked_for=OFF[mechanism])
        if OFF[mechanism] in {promise for promise, _ in world.violations}:
            return
    pytest.fail(f"without {mechanism}, promise {OFF[mechanism]} held under a dozen seeds: its check cannot fail")


@pytest.mark.slow
def test_with_all_mechanisms_on_the_same_bad_days_break_nothing() -> None:
    for seed in {143, *(seed for mechanism, seed in SHOWN_BY.items() if mechanism != "guards")}:
        assert run_seed(seed, ALL, msgspec.structs.replace(ROUGH)).violations == []
    assert run_seed(SHOWN_BY["guards"], ALL, msgspec.structs.replace(LYING)).violations == []
