"""The simulated machine: what nodes draw and how fast jobs go; and its scheduler."""

from __future__ import annotations

import numpy as np
import pytest

from strata.power.capping.terms import Ratings, Use
from strata.power.simulation.scheduler import Held, startable
from strata.power.simulation.trace import Trace
from strata.power.simulation.world import Machine, World

NOBODY = Held(np.empty(0, np.int64), np.empty(0), np.empty(0))


def trace(watts: float = 300.0, seconds: float = 1000.0, limit: float = 5000.0, sensitivity: float = 0.5) -> Trace:
    one = np.ones(1)
    number = np.ones(1, np.int64)
    return _Steady(
        0 * one, 2 * number, one * seconds, one * limit, one * watts, one * sensitivity, one * np.inf, number
    )


class _Steady(Trace):
    """Jobs that always draw their mean."""

    def levels(self, job: int, high: float) -> np.ndarray:
        return np.full(32, self.watts[job])


def world(jobs: Trace, *, cap: float = 400.0, limit: float = 1e9, count: int = 4) -> World:
    machine = Machine(ratings=Ratings.alike(count, idle=50, boot=120, low=200, high=400), spread=0.0)
    return World(machine, jobs, limit, 1, np.full(count, cap))


def test_nodes_draw_by_what_they_do() -> None:
    made = world(trace())
    assert made.total == 200.0
    made.set_use(np.array([2]), Use.BOOTING)
    made.set_use(np.array([3]), Use.OFF)
    made.start(0, np.array([0, 1]), 400.0)
    assert made.total == 300 + 300 + 120 + 0


def test_a_cap_takes_power_and_speed() -> None:
    made = world(trace(sensitivity=0.5), cap=200.0)
    made.start(0, np.array([0, 1]), 200.0)
    assert made.total == 2 * 200 + 2 * 50
    assert made.next_end() == pytest.approx(1000.0 / (150 / 250) ** 0.5)


def test_a_job_is_as_fast_as_its_slowest_node() -> None:
    made = world(trace(sensitivity=1.0))
    made.start(0, np.array([0, 1]), 400.0)
    made.advance(500.0)
    made.set_caps(np.array([1]), np.array([200.0]))
    assert made.next_end() == pytest.approx(500.0 + 500.0 / (150 / 250))


def test_energy_and_time_above_the_limit_add_up() -> None:
    made = world(trace(), limit=500.0)
    made.start(0, np.array([0, 1]), 400.0)
    made.advance(100.0)
    made.set_caps(np.array([0, 1]), np.array([200.0, 200.0]))
    made.advance(200.0)
    assert made.energy == 100 * 700 + 100 * 500
    assert (made.over_seconds, made.peak) == (100.0, 700.0)


def test_caps_that_change_together_are_seen_at_their_worst() -> None:
    made = world(trace(watts=400.0), cap=300.0, count=2)
    made.start(0, np.array([0, 1]), 300.0)
    made.set_caps(np.array([0, 1]), np.array([200.0, 400.0]))
    assert (made.peak, made.total) == (700.0, 600.0)
    assert made.peak_possible == 700.0


def test_a_job_ends_with_its_work_or_at_its_limit() -> None:
    made = world(trace(limit=900.0))
    made.start(0, np.array([0, 1]), 400.0)
    made.advance(made.next_end())
    assert [(found.whole, found.ran) for found in made.ended()] == [(False, 900.0)]
    made = world(trace())
    made.start(0, np.array([0, 1]), 400.0)
    made.advance(made.next_end())
    assert [(found.whole, found.ran) for found in made.ended()] == [(True, 1000.0)]
    assert made.total == 200.0 and made.next_end() == np.inf


def test_meters_tell_averages_over_the_last_minutes() -> None:
    made = world(trace(seconds=1e6, limit=2e6))
    made.start(0, np.array([0, 1]), 400.0)
    for minute in range(1, 31):
        made.advance(minute * 60.0)
        made.mark()
        if minute == 29:
            made.set_caps(np.array([0, 1]), np.array([200.0, 200.0]))
    jobs = made.jobs()
    slot = made.slot[0]
    assert jobs.minute[slot] == 200.0
    assert jobs.quarter[slot] == pytest.approx((14 * 300 + 200) / 15)
    assert jobs.hour[slot] == jobs.life[slot] == pytest.approx((29 * 300 + 200) / 30)


def test_more_jobs_than_there_was_room_for_find_it() -> None:
    made = world(trace(), count=300)
    for row in range(300):
        made.start(0, np.array([row]), 400.0)
    made.advance(made.next_end())
    assert made.total == 300 * 300.0
    assert len(made.ended()) == 300


def columns(*jobs: tuple[int, float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nodes, watts, limit = zip(*jobs, strict=True)
    return np.array(nodes), np.array(watts, float), np.array(limit, float)


def test_jobs_start_in_order_while_they_fit() -> None:
    assert startable(0, *columns((2, 10, 9), (2, 10, 9), (1, 10, 9)), 4, 100, NOBODY) == [0, 1]
    assert startable(0, *columns((2, 10, 9), (2, 95, 9)), 9, 100, NOBODY) == [0]


def test_a_job_goes_ahead_only_if_it_does_not_delay_the_first_that_waits() -> None:
    held = Held(np.array([4]), np.array([40.0]), np.array([100.0]))
    waiting = columns((6, 60, 50), (2, 10, 200), (2, 10, 90))
    assert startable(0, *waiting, 2, 100, held) == [2], "the second would hold its nodes beyond 100"
    roomy = Held(np.array([6]), np.array([40.0]), np.array([100.0]))
    assert startable(0, *waiting, 2, 100, roomy) == [1]


def test_power_is_reserved_like_nodes() -> None:
    held = Held(np.array([4]), np.array([40.0]), np.array([100.0]))
    waiting = columns((2, 60, 50), (2, 30, 200), (2, 30, 90))
    assert startable(0, *waiting, 10, 50, held) == [1]
    tight = columns((2, 85, 50), (2, 30, 200), (2, 30, 90))
    assert startable(0, *tight, 10, 50, held) == [2]
