"""Energy counters of simulated BMCs: coarse, stuck, wrapping, silent."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.meters import EVERY, KWH, METERS, MIXED, Meters, kinds_of

HOURS = np.arange(0.0, 4 * 3600.0, 60.0)
WATTS = 500.0


def shown(kind: str) -> list[float]:
    """What a counter of that kind shows, minute by minute."""
    meters = Meters(1, 7, (kind,))
    idx = np.array([0])
    return [float(meters.shows(idx, np.array([WATTS * now]), now)[0]) for now in HOURS.tolist()]


@pytest.mark.parametrize(("kind", "step"), [("0.1kWh", 0.1), ("0.01kWh", 0.01), ("0.001kWh", 0.001)])
def test_a_coarse_counter_shows_whole_steps_and_lags_by_less_than_one(kind: str, step: float) -> None:
    readings = np.array(shown(kind)) / KWH
    assert np.allclose(readings / step, np.round(readings / step), atol=1e-4)
    used = WATTS * HOURS / KWH
    assert np.abs((readings - readings[0]) - used).max() < step


def test_a_stuck_counter_counts_and_then_stands_still() -> None:
    readings = shown("stuck")
    assert readings[-1] == readings[len(readings) // 2 + 1] > readings[0]


def test_a_wrapping_counter_begins_anew_where_it_ends() -> None:
    readings = np.array(shown("wrapping"))
    assert readings.max() < METERS["wrapping"].ends
    assert (np.diff(readings) < 0).sum() == 4, "just less than two kilowatt hours, each of its rounds is 0.4"


def test_a_silent_one_tells_nothing_for_some_minutes_of_every_round() -> None:
    meters, idx = Meters(6, 3, kinds_of(MIXED)), np.arange(6)
    silent = np.array([meters.silent(idx, now) for now in np.arange(0.0, 10 * EVERY, 10.0).tolist()])
    assert not silent[:, [kind != "silent" for kind in meters.kinds]].any()
    share = silent[:, [kind == "silent" for kind in meters.kinds]].mean()
    assert 100 / EVERY <= share <= 900 / EVERY


def test_what_nodes_used_in_truth_is_not_what_their_counters_show() -> None:
    nodes = SimNodes(6, meters=kinds_of("0.1kWh,fine"))
    nodes.put(nodes.all, now=0.0, power="on")
    nodes.joules(nodes.all, 0.0)
    before, after = nodes.counters(nodes.all, 1.0), nodes.counters(nodes.all, 101.0)
    used = nodes.joules(nodes.all, 101.0)
    assert used.min() > 20_000
    assert (after - before)[1::2] == pytest.approx(used[1::2] * 100 / 101, abs=4.0)
    assert set((after - before)[::2]) <= {0.0, 0.1 * KWH}


def test_an_unknown_counter_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(BadRequest, match=r"no energy counter '0.2kWh'.*0\.1kWh.*mixed"):
        kinds_of("stuck,0.2kWh")
