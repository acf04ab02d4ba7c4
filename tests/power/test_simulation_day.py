"""Simulations: the site limit holds at every instant, whatever the policy, the wire and the controller's health."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from strata.power.policies.policy import parse
from strata.power.simulation.outcome import Outcome
from strata.power.simulation.simulation import Death, Wire, baselines, compare, simulate
from strata.power.simulation.trace import generate
from strata.power.simulation.world import Machine

OVER = "limit: {limit}\nover-provisioned: {{mood: {mood}}}\nidle-pool: {{low: 8, high: 20, on: 40, off: 20}}\n"


def run(
    text: str, *, nodes: int = 200, limit: float = 50e3, hours: float = 6, seed: int = 1, **more: object
) -> Outcome:
    policy = parse(text, source="test")
    jobs = generate(seed, nodes=nodes, days=hours / 24, high=400.0, queues=len(policy.queues))
    machine = Machine(ratings=policy.nodes.ratings(nodes))
    return simulate(policy, machine, jobs, limit=limit, days=hours / 24, seed=seed, **more)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mood", ["aggressive", "gentle", "by-demand"])
def test_the_limit_holds_on_a_wire_that_loses(mood: str, seed: int) -> None:
    found = run(OVER.format(limit="50kW", mood=mood), seed=seed, wire=Wire(slowest=50, lost=0.1, unanswered=0.1))
    assert found.over_limit_s == 0 and found.peak_w <= found.peak_possible_w <= 50e3 + 1e-3
    assert found.jobs > 10


@pytest.mark.slow
@pytest.mark.parametrize(("mood", "away"), [("aggressive", 3600.0), ("by-demand", 2.0)])
def test_the_limit_holds_when_the_controller_dies_in_the_middle_of_a_change(mood: str, away: float) -> None:
    text = OVER.format(limit="50kW", mood=mood)
    wire = Wire(slowest=55, lost=0.1, unanswered=0.1)
    found = run(text, wire=wire, death=Death(after=7200.0, away=away))
    assert found.over_limit_s == 0 and found.peak_w <= found.peak_possible_w <= 50e3 + 1e-3
    assert found != run(text, wire=wire), "it made a difference"


@pytest.mark.slow
def test_queues_run_their_jobs_under_their_caps() -> None:
    found = run("limit: 60kW\nqueues: {frugal: {cap: 200W, nodes: 200}, free: {}}", limit=60e3)
    assert found.over_limit_s == 0 and found.peak_w <= 60e3
    assert found.jobs > 10 and found.stretch > 1.02


@pytest.mark.slow
def test_nodes_that_nobody_needs_are_stopped_and_started_again() -> None:
    idle = "limit: 80kW\nidle-pool: {low: 5, high: 10, on: 50, off: 50}\ninrush: {node: 150W, cabinet: 3kW}"
    policy = parse(idle, source="test")
    jobs = generate(1, nodes=200, days=0.25, high=400.0, load=0.3, backlog=0.0)
    machine = Machine(ratings=policy.nodes.ratings(200))
    frugal = simulate(policy, machine, jobs, limit=80e3, days=0.25)
    always = simulate(parse("", source="test"), machine, jobs, limit=80e3, days=0.25)
    assert frugal.stops > 50 and frugal.starts > 10
    assert frugal.energy_kwh < 0.9 * always.energy_kwh
    assert frugal.node_hours > 0.9 * always.node_hours


@pytest.mark.slow
def test_a_ramp_slows_the_machine_but_does_not_stop_it() -> None:
    slow = run(OVER.format(limit="50kW", mood="aggressive") + "ramp: {up: 2kW}")
    assert slow.over_limit_s == 0 and slow.jobs > 5
    assert slow.node_hours < run(OVER.format(limit="50kW", mood="aggressive")).node_hours


@pytest.mark.slow
def test_the_same_seed_gives_the_same_day() -> None:
    text = OVER.format(limit="50kW", mood="by-demand")
    assert run(text, hours=2) == run(text, hours=2)
    assert run(text, hours=2) != run(text, hours=2, seed=2)


@pytest.mark.slow
def test_without_a_policy_the_limit_is_not_kept_and_that_is_said() -> None:
    policy = parse(OVER.format(limit="50kW", mood="by-demand"), source="test")
    jobs = generate(1, nodes=200, days=0.25, high=400.0)
    own, none, static, fewer = compare(policy, jobs, nodes=200, limit=50e3, days=0.25, seed=1)
    assert [outcome.over_limit_s for outcome in (own, static, fewer)] == [0, 0, 0]
    assert none.over_limit_s > 3600 and none.peak_w > 50e3
    assert (static.name, fewer.name) == ("static 250 W", "uncapped, 125 nodes")
    assert fewer.node_hours < own.node_hours < none.node_hours


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_paper_s_over_provisioned_system_for_a_day() -> None:
    """8,000 nodes of 400, 200 and 50 W behind 2 MW; the controller dies in the middle of a change of caps."""
    policy = parse(
        "limit: 2MW\nnodes: {idle: 50W, boot: 150W, low: 200W, high: 400W}\n"
        "over-provisioned: {mood: aggressive}\nidle-pool: {low: 100, high: 300, on: 200, off: 200}",
        source="paper",
    )
    jobs = generate(1, nodes=8000, days=1, high=400.0)
    death = Death(after=9 * 3600.0, away=600.0)
    own = simulate(policy, Machine(ratings=policy.nodes.ratings(8000)), jobs, limit=2e6, death=death)
    static, fewer = (
        simulate(other, Machine(ratings=other.nodes.ratings(count)), jobs, limit=2e6)
        for other, count in baselines(policy, 8000, 2e6)[1:]
    )
    for outcome in (own, static, fewer):
        assert outcome.over_limit_s == 0 and outcome.peak_w <= 2e6
    assert own.peak_possible_w <= 2e6 + 1e-3, "not even if every node had drawn all that its cap allowed"
    # More work than what 2 MW feed without caps, and jobs hardly notice. One cap for all does more, at their cost.
    assert own.jobs_per_day > fewer.jobs_per_day
    assert own.node_hours > 1.2 * fewer.node_hours
    assert own.stretch < 1.02 < 1.05 < static.stretch
    assert own.energy_kwh < static.energy_kwh
    assert np.isfinite(list(filter(lambda value: isinstance(value, float), msgspec.structs.astuple(own)))).all()
