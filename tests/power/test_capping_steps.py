"""What is more than a ramp allows in a minute goes in steps, and gets there."""

from __future__ import annotations

import numpy as np
import pytest

from strata.power.capping.ledger import Ledger
from strata.power.capping.split import propose
from strata.power.capping.terms import Limits, Ratings, Use


def ledger(count: int, cap: float) -> Ledger:
    ratings = Ratings.alike(count, idle=50, boot=150, low=200, high=2400)
    return Ledger(ratings, caps=np.full(count, cap), use=Use.BUSY)


def minutes(
    found: Ledger, targets: list[float], limits: Limits, groups: list[int] | None = None, most: int = 50
) -> list[list[float]]:
    """The caps after each minute in which something was sent and set."""
    seen, now, together = [], 1000.0, None if groups is None else np.array(groups)
    for _ in range(most):
        commands = propose(found, now, np.array(targets), limits, groups=together)
        if not len(commands.rows):
            break
        found.send(commands, now, now + 60)
        found.confirm(*commands, now)
        seen.append(found.cap.tolist())
        now += 60
    return seen


def test_a_rise_above_the_ramp_takes_as_many_minutes_as_it_needs() -> None:
    assert minutes(ledger(1, 300), [1000], Limits(site=9999, ramp_up=300)) == [[600], [900], [1000]]


def test_a_fall_above_the_ramp_does_too_and_stops_at_the_floor() -> None:
    assert minutes(ledger(1, 1000), [300], Limits(site=9999, ramp_down=300)) == [[700], [400], [300]]
    assert minutes(ledger(1, 1000), [300], Limits(site=9999, ramp_down=300, floor=600)) == []


def test_the_nodes_of_a_job_rise_alike() -> None:
    found = minutes(ledger(3, 300), [500, 500, 400], Limits(site=9999, ramp_up=250), groups=[7, 7, 7])
    assert found == [[400, 400, 350], [500, 500, 400]]


def test_of_many_nodes_each_gets_a_watt_in_turn_where_there_is_no_more() -> None:
    found = minutes(ledger(8, 300), [302] * 8, Limits(site=9999, ramp_up=3), groups=[0] * 8)
    assert found[-1] == [302] * 8
    assert max(np.diff([2400.0, *(sum(caps) for caps in found)])) <= 3


def test_what_would_not_fit_in_the_end_does_not_begin() -> None:
    assert minutes(ledger(2, 300), [2000, np.nan], Limits(site=1000, ramp_up=100)) == []


def test_a_small_remainder_of_the_ramp_is_left_for_others() -> None:
    found, limits = ledger(2, 300), Limits(site=9999, ramp_up=100)
    first = propose(found, 1000.0, np.array([395.0, np.nan]), limits)
    found.send(first, 1000.0, 1060.0)
    found.confirm(*first, 1000.0)
    assert not len(propose(found, 1030.0, np.array([np.nan, 900.0]), limits).rows), "5 W are not worth a command"
    assert propose(found, 1060.0, np.array([np.nan, 900.0]), limits).watts.tolist() == [400.0]


@pytest.mark.parametrize("floor", [0.0, 5000.0])
def test_the_cap_of_a_node_that_is_off_is_lowered_whatever_the_band_says(floor: float) -> None:
    found = ledger(1, 2400)
    found.use[:] = Use.OFF
    assert minutes(found, [300], Limits(site=9999, floor=floor)) == [[300]]
