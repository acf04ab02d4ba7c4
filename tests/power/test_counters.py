"""Energy counters between two readings."""

from __future__ import annotations

import numpy as np
import pytest

from strata.power.telemetry.counters import Counters

ONE = np.array([1])


def read(counters: Counters, time: float, joules: float, watts: float = 300.0) -> None:
    counters.take(ONE, np.array([joules]), np.array([time]), np.array([watts]))


def asked(counters: Counters, now: float) -> float:
    return float(counters.at(ONE, now, 30.0)[0][0])


def watts_seen(counters: Counters, times: list[float], joules: list[float], every: float) -> list[float]:
    """What somebody reckons who asks more often than the counter is read, once its pace is known."""
    found, now, before = [], times[0], None
    for time, value in zip(times, joules, strict=True):
        while now < time:
            told = asked(counters, now)
            if before is not None:
                found.append((told - before) / every)
            before, now = told, now + every
        read(counters, time, value)
    return found[len(found) // 5 :]


def test_a_counter_rises_for_who_asks_more_often_than_it_is_read() -> None:
    times = [10.0 * look for look in range(40)]
    watts = watts_seen(Counters(), times, [300.0 * time for time in times], 2.0)
    assert min(watts) == pytest.approx(300)
    assert max(watts) == pytest.approx(300)


@pytest.mark.parametrize("step", [3600.0, 36_000.0, 360_000.0])
def test_a_coarse_counter_does_not_read_as_no_watts_and_then_as_thousands(step: float) -> None:
    times = [10.0 * look for look in range(600)]
    watts = watts_seen(Counters(), times, [np.floor(300.0 * time / step) * step for time in times], 5.0)
    assert min(watts) >= 0
    assert np.median(watts) == pytest.approx(300)
    assert max(watts) < 1000
    assert np.mean(watts) == pytest.approx(300, rel=0.1)


def test_what_is_told_never_falls_and_a_counter_that_begins_anew_goes_on() -> None:
    counters = Counters()
    told = []
    for look in range(100):
        read(counters, 10.0 * look, (300.0 * 10 * look) % 50_000)
        told += [asked(counters, 10.0 * look + late) for late in (0.0, 9.0)]
    assert np.diff(told).min() >= 0
    assert told[-1] == pytest.approx(300 * 999, rel=0.02)


def test_a_counter_that_was_reckoned_too_high_goes_on_slowly_until_the_truth_has_caught_up() -> None:
    counters, told = Counters(), []
    read(counters, 0.0, 0.0)
    read(counters, 10.0, 3000.0, watts=500.0)  # and from then on it draws 300, which is seen 20 s later
    joules = {30: 9000.0, 50: 15_000.0, 70: 21_000.0}
    for now in range(10, 90, 2):
        if now in joules:
            read(counters, now, joules[now])
        told.append(asked(counters, now))
    watts = np.diff(told) / 2
    assert min(watts) == pytest.approx(150)
    assert max(watts) == pytest.approx(500)
    assert watts[-1] == pytest.approx(300)
    assert told[-1] == pytest.approx(300 * 88, abs=3000), "within what the counter may have left unsaid"


def test_a_counter_whose_node_seems_to_draw_five_times_as_much_is_never_far_ahead() -> None:
    counters = Counters()
    for now in range(0, 6000, 2):
        if now % 10 == 0:
            read(counters, now, 300.0 * now, watts=1500.0)
        told = asked(counters, now)
        assert 300.0 * now <= told <= 300.0 * now + 1500 * 80


def test_a_counter_that_stands_still_while_its_node_draws_power_is_left_behind() -> None:
    counters = Counters()
    for look in range(60):
        read(counters, 10.0 * look, min(3000.0 * look, 60_000.0))
    assert asked(counters, 599.0) == pytest.approx(300 * 599, rel=0.1)


def test_one_that_was_not_read_of_late_says_nothing() -> None:
    counters = Counters()
    read(counters, 100.0, 5.0)
    values, times, seen = counters.at(np.array([1, 2]), 131.0, 30.0)
    assert np.isnan(values).all()
    assert np.isnan(times).all()
    assert np.isnan(seen).all()


def test_a_node_that_is_no_more_leaves_nothing_to_the_next_of_its_number() -> None:
    counters = Counters()
    read(counters, 100.0, 5_000_000.0)
    asked(counters, 101.0)
    counters.forget(ONE)
    read(counters, 102.0, 7.0)
    assert asked(counters, 102.0) == 7.0
