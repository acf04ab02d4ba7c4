"""Energy of jobs whose counters are coarse, stand still, begin anew or are silent: the truth and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from strata.power.series.records import Energy, Samples
from strata.power.series.series import Series
from support.metered import HOLD, Metered, verdicts

BEGIN = 1_699_999_200.0
KWH = 3.6e6
ONE = np.array([1])


@pytest.fixture
async def series(tmp_path: Path) -> AsyncIterator[Series]:
    found = Series.in_file(tmp_path / "telemetry.db", clock=lambda: 4e9, hold=HOLD, lateness=45.0)
    await found.start()
    yield found
    await found.close()


def told(metric: str, time: float, value: float) -> Samples:
    return Samples(metric=metric, time=BEGIN + time, uids=ONE, values=np.array([value]))


async def run(
    series: Series, counter: list[float], *, watts: float | None = 300.0, job: tuple[float, float] = (403.0, 603.0)
) -> Energy:
    """Looks every ten seconds, at a counter and at a steady power; then what a job used."""
    batch = [told("energy", 10.0 * look, joules) for look, joules in enumerate(counter)]
    if watts is not None:
        batch += [told("power", 10.0 * look, watts + look % 2) for look in range(len(counter))]
    await series.append(batch)
    return await series.energy(ONE, BEGIN + job[0], BEGIN + job[1])


def counted(step: float, watts: float = 300.0, looks: int = 200, begins: float = 0.0) -> list[float]:
    return [np.floor((begins + 10.0 * look * watts) / step) * step for look in range(looks)]


@pytest.mark.parametrize("begins", [0.0, 200_000.0, 239_000.0])
async def test_a_counter_with_one_decimal_does_not_make_six_times_the_energy_of_a_job(
    series: Series, begins: float
) -> None:
    found = await run(series, counted(0.1 * KWH, begins=begins))
    assert found.joules[0] == pytest.approx(60_000, rel=0.01)
    assert abs(found.joules[0] - 60_100) <= found.error[0] <= 6000
    assert (found.known[0], found.counted[0]) == (1.0, False)
    assert found.peak[0] == 301.0, "no reading said more"
    assert found.flags.differs[0] == 0


async def test_a_coarse_counter_alone_says_how_coarse_it_is(series: Series) -> None:
    found = await run(series, counted(0.1 * KWH, begins=239_000.0), watts=None)
    assert abs(found.joules[0] - 60_000) <= found.error[0]
    assert found.error[0] >= 300_000
    assert found.peak[0] <= 1800, "a step of the counter is not drawn in one look"


@pytest.mark.slow
async def test_a_fine_counter_is_better_than_power_over_a_long_time(series: Series) -> None:
    rng = np.random.default_rng(1)
    watts = rng.choice([100.0, 500.0], 1500)
    joules = np.cumsum(watts * 10)
    batch = [told("energy", 10.0 * look, float(np.floor(value / 3.6) * 3.6)) for look, value in enumerate(joules)]
    batch += [told("power", 10.0 * look, float(value)) for look, value in enumerate(watts)]
    await series.append(batch)
    found = await series.energy(ONE, BEGIN + 1000, BEGIN + 11_000)
    assert found.counted[0]
    assert abs(found.joules[0] - (joules[1100] - joules[100])) <= found.error[0] <= 2000


async def test_a_counter_that_stands_still_does_not_make_a_job_free(series: Series) -> None:
    found = await run(series, [5 * KWH] * 200)
    assert found.joules[0] == pytest.approx(60_000, rel=0.01)
    assert (found.counted[0], found.known[0]) == (False, 1.0)
    assert found.flags.stuck[0] >= 120


async def test_a_counter_that_stops_in_the_middle_of_a_job_is_not_believed(series: Series) -> None:
    moving = counted(0.001 * KWH)
    found = await run(series, [*moving[:50], *[moving[49]] * 150])
    assert found.joules[0] == pytest.approx(60_000, rel=0.01)
    assert not found.counted[0]


async def test_a_counter_that_never_moved_says_nothing_where_nobody_tells_of_power(series: Series) -> None:
    found = await run(series, [5 * KWH] * 200, watts=None)
    assert (found.known[0], found.joules[0]) == (0.0, 0.0)
    assert found.flags.stuck[0] >= 120


async def test_a_counter_that_begins_anew_at_an_end_that_nobody_knows_loses_nothing(series: Series) -> None:
    joules = [value % (0.0123 * KWH) for value in counted(1.0)]
    found = await run(series, joules)
    assert found.flags.resets[0] > 0
    assert found.known[0] == 1.0
    assert abs(found.joules[0] - 60_100) <= found.error[0] <= 4000


async def test_a_counter_that_tells_more_than_was_ever_drawn_is_flagged_and_so_far_in_doubt(series: Series) -> None:
    found = await run(series, counted(1.0, watts=450.0))
    assert found.flags.differs[0] == 1
    assert found.error[0] >= 30_000


async def test_a_counter_that_is_brought_up_to_date_now_and_then_has_steps_of_that(series: Series) -> None:
    fine = counted(1.0)
    found = await run(series, [fine[look - look % 6] for look in range(200)])
    assert abs(found.joules[0] - 60_100) <= found.error[0]


@pytest.mark.slow
async def test_the_truth_is_within_the_stated_error_and_that_is_not_a_multiple_of_the_real_one(series: Series) -> None:
    world = Metered(each=4, seconds=9000, seed=3)
    for batch in world.samples():
        await series.append(batch)
    found = await verdicts(series, world, 600)
    real = np.array([abs(one.told - one.truth) for one in found])
    stated = np.array([one.error for one in found])
    assert (real <= stated).mean() >= 0.97, "of ten thousand it is 0.99 (bench/energy.py)"
    assert stated.mean() <= 4 * real.mean()
