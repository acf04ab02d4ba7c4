"""What samples and summaries of them add up to, and the truth: they differ by no more than the worst that is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.power.series.codec import decode_summary, encode_summary
from strata.power.series.downsample import FIELDS, ROW, Fold
from strata.power.series.ends import Ends
from strata.power.series.query import energy_of
from strata.power.series.records import METRICS, Energy

pytestmark = pytest.mark.slow

POWER, ENERGY = METRICS["power"], METRICS["energy"]
HOLD = 30.0
ORIGIN = 6000.0

Array = npt.NDArray[np.float64]


class World:
    """A node's true power: between two looks at it, it goes from the one value to the other at some moment."""

    def __init__(self, gaps: list[int], powers: list[int], turns: list[float]) -> None:
        self.times: Array = ORIGIN + np.concatenate([[0.0], np.cumsum(gaps)])
        self.powers: Array = np.array(powers[: len(self.times)], float)
        self.turns: Array = self.times[:-1] + np.array(turns[: len(gaps)]) * np.array(gaps)

    def used(self, start: float, end: float, longest: float = np.inf) -> tuple[float, float]:
        """The true energy between two times, and the time itself; without what lies between looks too far apart."""
        joules = seconds = 0.0
        for index, turn in enumerate(self.turns):
            low, high = max(self.times[index], start), min(self.times[index + 1], end)
            if high > low and self.times[index + 1] - self.times[index] <= longest:
                middle = min(max(turn, low), high)
                joules += (middle - low) * self.powers[index] + (high - middle) * self.powers[index + 1]
                seconds += high - low
        return joules, seconds

    def counter(self, offset: float) -> Array:
        """What an energy counter shows at each look."""
        return np.array([offset + self.used(ORIGIN, time)[0] for time in self.times])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(2, 40))
    return World(
        draw(st.lists(st.sampled_from([1, 2, 5, 10, 29, 31, 100]), min_size=size - 1, max_size=size - 1)),
        draw(st.lists(st.integers(0, 3000), min_size=size, max_size=size)),
        draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)),
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[World, float, float]:
    world = draw(worlds())
    length = world.times[-1] - world.times[0]
    first, last = sorted((draw(st.floats(-0.2, 1.2)), draw(st.floats(-0.2, 1.2))))
    start = ORIGIN + first * length
    return world, start, max(ORIGIN + last * length, start + 1.0)


def told(start: float, end: float, powers: Fold | None = None, counters: Fold | None = None) -> Energy:
    return energy_of(
        np.array([1]),
        start,
        end,
        counters or Fold(ENERGY, 1, HOLD, start, end),
        powers or Fold(POWER, 1, HOLD, start, end),
        Ends.unknown(1),
    )


def folded(metric: str, times: Array, values: Array, start: float, end: float) -> Fold:
    """As a store does it: whole minutes are summaries that were on disk, all else is samples."""
    fold = Fold(METRICS[metric], 1, HOLD, start, end)
    minutes = np.floor(times / 60) * 60
    for minute in np.unique(minutes):
        here = minutes == minute
        inner = Fold(METRICS[metric], 1, HOLD)
        inside = start <= minute and minute + 60 <= end
        for time, value in zip(times[here], values[here], strict=True):
            (inner if inside else fold).row(float(time), np.array([value]))
        if inside:
            packed = encode_summary(METRICS[metric], inner.summary, float(minute))
            fold.absorb(decode_summary(METRICS[metric], packed, float(minute), np.array([0])))
    return fold


@given(questions())
def test_from_power_it_is_within_the_worst_error_and_the_known_part_is_right(
    question: tuple[World, float, float],
) -> None:
    world, start, end = question
    fold = folded("power", world.times, world.powers, start, end)
    found = told(start, end, powers=fold)
    truth, seconds = world.used(start, end, HOLD)
    assert abs(found.joules[0] - truth) <= fold.summary[ROW["error"]][0] + 1e-6 * (1.0 + truth)
    assert found.joules[0] == fold.summary[ROW["joules"]][0]
    assert found.known[0] == pytest.approx(min(1.0, seconds / (end - start)), abs=1e-5)


@given(questions(), st.sampled_from([0.0, 12345.0, 2.0**32 - 5000.0, 2**64 / 1e6 - 5000.0]))
def test_from_a_counter_it_is_within_the_worst_error_across_gaps_and_wraps(
    question: tuple[World, float, float], offset: float
) -> None:
    world, start, end = question
    top = 2.0**32 if offset < 2.0**32 else 2**64 / 1e6
    shown = np.rint(np.mod(world.counter(offset), top) * 8) / 8
    fold = folded("energy", world.times, shown, start, end)
    # What lies between two looks is known as a whole; a part of it only when they are not too far apart.
    truth = seconds = 0.0
    for index in range(len(world.turns)):
        low, high = world.times[index], world.times[index + 1]
        whole = start <= low and high <= end
        joules, length = world.used(max(low, start), min(high, end)) if whole or high - low <= HOLD else (0.0, 0.0)
        truth, seconds = truth + joules, seconds + length
    counted, worst = fold.summary[ROW["joules"]][0], fold.summary[ROW["error"]][0]
    assert abs(counted - truth) <= worst + ENERGY.quantum + np.spacing(shown.max()) + 1e-6 * counted
    assert fold.summary[ROW["covered"]][0] == pytest.approx(seconds, abs=1e-5 * (end - start))
    assert fold.flags().resets[0] == 0
    if fold.summary[ROW["step"]][0]:
        assert told(start, end, counters=fold).joules[0] == pytest.approx(counted)


@given(worlds(), st.integers(1, 39))
def test_a_reset_costs_its_interval_and_no_more(world: World, at: int) -> None:
    at = min(at, len(world.times) - 1)
    counts = world.counter(1_000_000.0)
    counts[at:] -= counts[at]
    start, end = float(world.times[0]), float(world.times[-1])
    fold = folded("energy", world.times, np.rint(counts * 8) / 8, start, end)
    lost, gap = world.used(float(world.times[at - 1]), float(world.times[at]))
    whole, length = world.used(start, end)
    assert fold.flags().resets.tolist() == [1]
    counted = fold.summary[ROW["joules"]][0]
    assert abs(counted - (whole - lost)) <= 2 * ENERGY.quantum + 1e-6 * counted
    assert fold.summary[ROW["covered"]][0] == pytest.approx(length - gap, abs=1e-5 * length)


@given(worlds(), st.lists(st.sampled_from([-3.0, 60_000.0, 1e9, np.nan]), min_size=1, max_size=5), st.data())
def test_absurd_values_change_nothing_but_what_is_known(world: World, wild: list[float], data: st.DataObject) -> None:
    powers = world.powers.copy()
    for value in wild:
        powers[data.draw(st.integers(0, len(powers) - 1))] = value
    sane = (powers >= 0) & (powers <= 50_000)
    start, end = float(world.times[0]), float(world.times[-1])
    with_them = told(start, end, powers=folded("power", world.times, powers, start, end))
    without = told(start, end, powers=folded("power", world.times[sane], powers[sane], start, end))
    assert with_them.joules[0] == pytest.approx(without.joules[0])
    assert with_them.known[0] == pytest.approx(without.known[0])
    assert with_them.flags.absurd[0] == (np.isfinite(powers) & ~sane)[:-1].sum()


@given(worlds(), st.integers(0, 40), st.integers(0, 40))
def test_it_does_not_matter_how_samples_are_put_together(world: World, first: int, second: int) -> None:
    cuts = sorted((min(first, len(world.times)), min(second, len(world.times))))
    whole, parts = Fold(POWER, 1, HOLD), Fold(POWER, 1, HOLD)
    for low, high in zip([0, *cuts], [*cuts, len(world.times)], strict=True):
        part = Fold(POWER, 1, HOLD)
        for time, power in zip(world.times[low:high], world.powers[low:high], strict=True):
            whole.row(float(time), np.array([power]))
            part.row(float(time), np.array([power]))
        parts.absorb(part.summary)
    # How changes on either side of a seam relate is not kept.
    for name in set(FIELDS) - {"flat", "fro"}:
        assert parts.summary[ROW[name]] == pytest.approx(whole.summary[ROW[name]], nan_ok=True), name


@given(questions())
def test_of_a_summary_that_is_cut_the_worst_error_is_known_too(question: tuple[World, float, float]) -> None:
    world, start, end = question
    inner = Fold(POWER, 1, HOLD)
    for time, power in zip(world.times, world.powers, strict=True):
        inner.row(float(time), np.array([power]))
    fold = Fold(POWER, 1, HOLD, start, end)
    fold.absorb_part(inner.summary)
    found = told(start, end, powers=fold)
    if inner.summary[ROW["gaps"]][0] == 0:
        worst = fold.summary[ROW["error"]][0]
        assert abs(found.joules[0] - world.used(start, end)[0]) <= worst + 1e-6 * (1.0 + found.joules[0])


def test_many_nodes_are_told_apart() -> None:
    fold = Fold(POWER, 3, HOLD)
    rows = ([100, 50, np.nan], [100, np.nan, 70], [100, 60, 80])
    for second, row in enumerate(rows):
        fold.row(1000.0 + second, np.array(row))
    assert fold.summary[ROW["joules"]].tolist() == [200.0, 110.0, 75.0]
    assert fold.summary[ROW["covered"]].tolist() == [2.0, 2.0, 1.0]
    assert fold.summary[ROW["n"]].tolist() == [3, 2, 2]
