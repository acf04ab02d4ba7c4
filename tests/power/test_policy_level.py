"""A policy with one cap, under a limit that does not leave that to everybody: all come to one level, from anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from strata.power.capping.ledger import Ledger
from strata.power.capping.terms import Limits, Use
from strata.power.policies.decide import decide
from strata.power.policies.policy import parse
from strata.power.policies.view import Jobs, View, Waiting

NODES = 64
POLICY = parse(
    "limit: 60kW\nramp: {up: 30kW}\nnodes: {idle: 90W, boot: 200W, low: 200W, high: 2400W}\nevery: 10s\ncap: 1.5kW",
    source="test",
)
LIMITS = POLICY.limits()
HALVES = [1500.0] * 32 + [200.0] * 32


def view(use: np.ndarray) -> View:
    none, number = np.empty(0, np.int64), np.full(NODES, -1, np.int64)
    jobs, nobody = Jobs(*[np.empty(0)] * 10), np.zeros(NODES, np.bool_)
    return View(use, number, np.zeros(NODES), number, number, number, jobs, Waiting(none, none), 0.0, 0.0, 0.0, nobody)


def ledger(caps: list[float]) -> Ledger:
    return Ledger(POLICY.nodes.ratings(NODES), caps=np.array(caps), asks=False)


def run(found: Ledger, limits: Limits = LIMITS, now: float = 1000.0, rounds: int = 60) -> list[float]:
    """What may be drawn at most after each thing that happens: sent, and set ten seconds later."""
    seen = []
    for _ in range(rounds):
        commands = decide(POLICY, now, view(found.use), found, limits, now).commands
        seen.append(float(found.worst().sum()))
        now += 10
        found.confirm(*commands, now)
        seen.append(float(found.worst().sum()))
    assert not len(decide(POLICY, now, view(found.use), found, limits, now).commands.rows), "it has come to rest"
    return seen


@pytest.mark.parametrize("caps", [HALVES, HALVES[::-1], [200.0] * NODES, [2400.0] * NODES, [937.0] * NODES])
def test_all_nodes_come_to_one_level_whatever_they_had(caps: list[float]) -> None:
    found = ledger(caps)
    seen = run(found)
    assert set(found.cap.tolist()) == {937.0}
    assert max(seen) <= max(sum(caps), LIMITS.site), "never above the limit, or further above it"


def test_caps_rise_only_into_what_others_have_given_up() -> None:
    found = ledger(HALVES)
    first = decide(POLICY, 1000.0, view(found.use), found, LIMITS, 1000.0).commands
    assert found.worst().sum() <= LIMITS.site
    assert (first.watts[first.rows < 32] == 937).all()
    assert (first.rows < 32).sum() == 32
    assert (first.rows >= 32).sum() == (60_000 - sum(HALVES)) // 737


def test_where_the_cap_fits_for_everybody_it_is_the_level() -> None:
    found = ledger(HALVES)
    run(found, Limits(site=96_000, ramp_up=30_000))
    assert set(found.cap.tolist()) == {1500.0}
    run(found, Limits(site=np.inf))
    assert set(found.cap.tolist()) == {1500.0}


def test_what_nodes_that_are_off_do_not_draw_is_for_the_others_but_for_what_starting_takes() -> None:
    found = ledger(HALVES)
    found.use[:14] = Use.OFF
    run(found)
    assert set(found.cap.tolist()) == {1144.0}
    assert found.room(9000.0, LIMITS) >= 14 * 200


def test_a_node_out_of_reach_counts_with_the_cap_that_it_may_have() -> None:
    found = ledger(HALVES)
    found.asked[0], found.until[0] = 937.0, 900.0
    run(found)
    assert set(found.cap[1:].tolist()) == {float((60_000 - 1500) // 63)}
