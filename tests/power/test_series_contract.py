"""What every telemetry store does."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from series_support import BEGIN, at, steady

from strata.core.errors import BadRequest, Compacted, Unavailable
from strata.power.series.records import Samples, Window
from strata.power.series.series import Keep, Series

pytestmark = pytest.mark.slow

Maker = Callable[..., Series]


@pytest.fixture
async def series(make_series: Maker) -> AsyncIterator[Series]:
    found = make_series()
    await found.start()
    yield found
    await found.close()


def of(window: Window, uid: int) -> dict[float, float]:
    """What a window says of one node."""
    column = window.values[:, int(np.searchsorted(window.uids, uid))]
    return {
        float(time): float(value) for time, value in zip(window.times, column, strict=True) if not math.isnan(value)
    }


async def test_what_is_appended_is_read_at_once(series: Series) -> None:
    await series.append([at(BEGIN + 0.5, {1: 100.0, 7: 250.125})])
    found = await series.window("power", None, BEGIN, BEGIN + 10)
    assert (found.uids.tolist(), found.times.tolist(), found.values.tolist()) == (
        [1, 7],
        [BEGIN + 0.5],
        [[100, 250.125]],
    )


async def test_what_is_on_disk_reads_as_what_is_in_memory(series: Series) -> None:
    values = {uid: 100.0 + uid / 8 for uid in range(0, 9000, 2)}
    await series.append(steady(BEGIN, 200, values))
    uids = np.array([4, 8998, 9999])
    found = await series.window("power", uids, BEGIN + 30, BEGIN + 200)
    assert len(found.times) == 170
    assert of(found, 4) == {BEGIN + second: 100.5 for second in range(30, 200)}
    assert of(found, 8998) == {BEGIN + second: 1224.75 for second in range(30, 200)}
    assert of(found, 9999) == {}


async def test_it_is_all_there_after_a_crash(series: Series, make_series: Maker) -> None:
    await series.append(steady(BEGIN, 150, {1: 100.0, 2: 50.0}))
    await series.flush()
    # As a crash leaves it: nothing is tidied up, only the locks are gone.
    await asyncio.to_thread(series._intake.stop)
    series._started = False
    again = make_series()
    await again.start()
    try:
        found = await again.window("power", None, BEGIN, BEGIN + 1000)
        assert of(found, 1) == {BEGIN + second: 100.0 for second in range(150)}
        await again.append(steady(BEGIN + 150, 100, {1: 100.0, 2: 50.0}))
        assert len((await again.window("power", None, BEGIN, BEGIN + 1000)).times) == 250
        assert again.refused.late == 0
    finally:
        await again.close()


async def test_nothing_more_needs_to_come_for_it_to_become_durable(
    make_series: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = make_series(flush_every=0.01)
    flush, flushed = series._flush_quietly, asyncio.Event()

    async def watched() -> None:
        await flush()
        flushed.set()

    monkeypatch.setattr(series, "_flush_quietly", watched)
    await series.start()
    try:
        await series.append([at(BEGIN, {1: 100.0})])
        await flushed.wait()
        assert series._intake._noted and not series._intake._unnoted
    finally:
        await series.close()


async def test_the_same_sample_twice_counts_once(series: Series) -> None:
    once = steady(BEGIN, 61, {1: 100.0})
    await series.append(once)
    await series.append(once)
    assert (await series.total("power", None, BEGIN, BEGIN + 100)).sums.tolist() == [100.0] * 61
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 60)
    assert found.joules[0] == pytest.approx(6000.0)


async def test_of_two_values_for_a_second_the_last_given_stays(series: Series) -> None:
    await series.append([at(BEGIN, {1: 100.0, 2: 10.0}), at(BEGIN, {1: 120.0, 2: math.nan})])
    assert (await series.window("power", None, BEGIN, BEGIN + 1)).values.tolist() == [[120.0, 10.0]]


async def test_disorder_within_the_lateness_is_put_right(series: Series) -> None:
    ordered = [*steady(BEGIN, 40, {1: 100.0}), at(BEGIN + 40, {1: 200.0, 2: 300.0})]
    await series.append([ordered[index] for index in np.random.default_rng(1).permutation(len(ordered))])
    await series.append([at(BEGIN + 75, {1: 100.0})])
    await series.append([at(BEGIN + 50, {3: 30.0})])
    found = await series.window("power", None, BEGIN, BEGIN + 100)
    assert (np.diff(found.times) > 0).all()
    assert of(found, 3) == {BEGIN + 50: 30.0}
    assert series.refused.late == 0


async def test_what_is_later_than_that_is_refused_and_counted(series: Series) -> None:
    await series.append(steady(BEGIN, 100, {1: 100.0, 2: 100.0}))
    await series.append([at(BEGIN + 10, {1: 999.0, 2: 999.0})])
    assert series.refused.late == 2
    assert of(await series.window("power", None, BEGIN, BEGIN + 60), 1)[BEGIN + 10] == 100.0


async def test_a_sender_with_a_wrong_clock_does_not_make_all_others_late(make_series: Maker) -> None:
    series = make_series(clock=lambda: BEGIN + 10.0)
    await series.start()
    try:
        await series.append([at(BEGIN + 100_000, {9: 1.0}), at(BEGIN + 10, {1: 100.0})])
        assert (series.refused.early, series.refused.late) == (1, 0)
        assert (await series.latest("power", None, 60)).uids.tolist() == [1]
    finally:
        await series.close()


async def test_infinite_values_are_nothing(series: Series) -> None:
    await series.append([at(BEGIN, {1: math.inf, 2: 1e300, 3: 5.0})])
    assert series.refused.nonsense == 2
    found = await series.window("power", np.array([1, 2, 3]), BEGIN, BEGIN + 1)
    assert np.isnan(found.values).tolist() == [[True, True, False]]


async def test_absurd_values_are_flagged_and_not_used(series: Series) -> None:
    batch = steady(BEGIN, 200, {1: 100.0, 2: 100.0})
    batch[20] = at(BEGIN + 20, {1: -5.0, 2: 1_000_000.0})
    await series.append(batch)
    found = await series.energy(None, BEGIN, BEGIN + 199)
    assert found.flags.absurd.tolist() == [1, 1]
    assert found.joules == pytest.approx([19_900, 19_900])
    assert found.peak.tolist() == [100, 100]
    assert (await series.total("power", None, BEGIN + 20, BEGIN + 21)).counts.tolist() == [0]
    assert (await series.window("power", None, BEGIN, BEGIN + 60)).flags.absurd.tolist() == [1, 1]


async def test_a_gap_is_a_gap(series: Series) -> None:
    batch = steady(BEGIN, 100, {1: 100.0}) + steady(BEGIN + 200, 101, {1: 100.0})
    await series.append(batch)
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 300)
    assert found.joules[0] == pytest.approx(99 * 100 + 100 * 100)
    assert found.known[0] == pytest.approx(199 / 300)
    assert (found.flags.gaps.tolist(), found.counted.tolist()) == ([1], [False])


async def test_a_node_without_samples_used_nothing_that_we_know_of(series: Series) -> None:
    await series.append(steady(BEGIN, 61, {1: 100.0}))
    found = await series.energy(np.array([1, 2]), BEGIN, BEGIN + 60)
    assert (found.known.tolist(), found.joules.tolist()) == ([1.0, 0.0], [6000.0, 0.0])
    assert np.isnan(found.peak[1])


async def test_a_counter_is_right_across_any_gap(series: Series) -> None:
    batch = [at(BEGIN + second, {1: 1000.0 + 250.0 * second}, "energy") for second in (0, 1, 2, 500, 501)]
    await series.append(batch)
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 501)
    assert (found.joules[0], found.known[0], found.counted.tolist()) == (501 * 250.0, 1.0, [True])
    assert found.error[0] < 251, "it may count in steps of 250 J"


@pytest.mark.parametrize("end", [2.0**32, 2**64 / 1e6])
async def test_a_counter_that_wraps_is_followed(series: Series, end: float) -> None:
    await series.append(
        [at(BEGIN + second, {1: (end - 3000.0 + 100.0 * second) % end}, "energy") for second in range(200)]
    )
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 199)
    assert found.joules[0] == pytest.approx(19_900, abs=float(found.error[0]))
    assert (found.flags.wraps.tolist(), found.flags.resets.tolist(), found.known.tolist()) == ([1], [0], [1.0])


async def test_a_counter_that_is_reset_loses_one_interval_and_says_so(series: Series) -> None:
    counts = [50_000.0 + 100 * second if second < 70 else 100.0 * (second - 70) for second in range(200)]
    await series.append([at(BEGIN + second, {1: count}, "energy") for second, count in enumerate(counts)])
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 199)
    assert found.flags.resets.tolist() == [1]
    assert found.joules[0] == pytest.approx(198 * 100.0)
    assert found.known[0] == pytest.approx(198 / 199)


async def test_a_counter_that_stands_still_gives_way_to_the_power(series: Series) -> None:
    for second in range(0, 300, 10):
        await series.append([at(BEGIN + second, {1: 5000.0}, "energy"), at(BEGIN + second, {1: 200.0})])
    found = await series.energy(np.array([1]), BEGIN, BEGIN + 290)
    assert (found.joules.tolist(), found.counted.tolist()) == ([58_000.0], [False])
    assert found.flags.stuck[0] >= 120


async def test_a_gauge_that_never_moves_is_flagged(series: Series) -> None:
    for second in range(0, 1200, 10):
        await series.append([at(BEGIN + second, {1: 100.0, 2: 100.0 + second % 20})])
    window = await series.window("power", None, BEGIN, BEGIN + 1200)
    energy = await series.energy(None, BEGIN, BEGIN + 1190)
    for stuck in (window.flags.stuck, energy.flags.stuck):
        assert stuck[0] >= 1100
        assert stuck[1] == 0


async def test_a_window_may_begin_and_end_between_samples(series: Series) -> None:
    await series.append(steady(BEGIN, 400, {1: 300.0}, "energy", pace=10))
    found = await series.energy(np.array([1]), BEGIN + 33, BEGIN + 333.5)
    assert found.known[0] == pytest.approx(1.0)
    assert abs(found.joules[0] - 300.5 * 300) <= found.error[0]
    assert found.error[0] < 2 * 10 * 300


async def test_an_hour_is_the_sum_of_its_seconds(series: Series) -> None:
    rng = np.random.default_rng(3)
    uids = np.arange(50, dtype=np.int64)
    powers = np.rint(rng.uniform(100, 400, (4200, 50)))
    stamps = BEGIN + 55 + np.arange(4200) + rng.uniform(0, 0.5, 4200)
    await series.append(
        [
            Samples(metric="power", time=float(stamp), uids=uids, values=row)
            for stamp, row in zip(stamps, powers, strict=True)
        ]
    )
    start, end = float(stamps[17]), float(stamps[3911])
    found = await series.energy(uids, start, end)
    truth = (np.diff(stamps[17:3912])[:, None] * (powers[17:3911] + powers[18:3912]) / 2).sum(axis=0)
    assert found.joules == pytest.approx(truth, rel=1e-6)
    assert found.known == pytest.approx(1.0)
    assert found.peak.tolist() == powers[17:3911].max(axis=0).tolist()
    total = await series.total("power", None, BEGIN, BEGIN + 5000)
    assert total.sums == pytest.approx(powers.sum(axis=1))
    assert set(total.counts.tolist()) == {50}
    some = await series.total("power", uids[10:20], BEGIN, BEGIN + 5000)
    assert some.sums == pytest.approx(powers[:, 10:20].sum(axis=1))


async def test_cabinets_are_summed_apart(series: Series) -> None:
    await series.append(steady(BEGIN, 150, {1: 100.0, 2: 10.0, 3: 1.0, 9: 5000.0}))
    await series.append([at(BEGIN + 150, {1: 200.0, 2: -1.0})])
    found = await series.totals("power", np.array([1, 2, 3, 4]), np.array([7, 5, 7, 8]), BEGIN + 10, BEGIN + 200)
    assert (found.groups.tolist(), len(found.times)) == ([5, 7, 8], 141)
    assert found.sums[:-1].tolist() == [[10.0, 101.0, 0.0]] * 140
    assert (found.sums[-1].tolist(), found.counts[-1].tolist()) == ([0.0, 200.0, 0.0], [0, 1, 0])
    assert found.counts[0].tolist() == [1, 2, 0]


async def test_a_sum_in_steps_is_of_means_where_some_are_missing(series: Series) -> None:
    batch = steady(BEGIN, 240, {1: 100.0, 2: 10.0})
    batch[63] = at(BEGIN + 63, {1: 100.0})
    await series.append(batch)
    for uids in (None, np.array([1, 2]), np.array([1, 2, 3])):
        for step in (10, 60):
            found = await series.total("power", uids, BEGIN, BEGIN + 240, step=step)
            assert found.sums == pytest.approx([110.0] * (240 // step))
            assert set(found.counts.tolist()) == {2}


@pytest.mark.parametrize("step", [10, 60, 600, 1800])
async def test_a_step_has_the_mean_and_the_bounds(series: Series, step: int) -> None:
    powers = 100.0 + np.arange(3700) % 60
    await series.append([at(BEGIN + second, {1: float(power)}) for second, power in enumerate(powers)])
    found = await series.window("power", None, BEGIN, BEGIN + 3600, step=step)
    assert found.times.tolist() == [BEGIN + step * index for index in range(3600 // step)]
    assert found.low is not None and found.high is not None
    for index in range(3600 // step):
        part = powers[index * step : (index + 1) * step]
        assert (found.low[index, 0], found.high[index, 0]) == (part.min(), part.max())
        assert found.values[index, 0] == pytest.approx(part.mean(), abs=0.6)
    total = await series.total("power", None, BEGIN, BEGIN + 3600, step=step)
    assert total.sums == pytest.approx(found.values[:, 0])


async def test_old_samples_make_way_for_summaries_and_the_energy_stays(make_series: Maker) -> None:
    series = make_series(keep=Keep(samples=3600, minutes=7200, ten_minutes=10 * 3600, hours=20 * 3600))
    await series.start()
    try:
        await series.append(steady(BEGIN, 5 * 3600, {1: 100.0, 2: 200.0}, pace=10))
        uids = np.array([1, 2])
        before = await series.energy(uids, BEGIN + 1800, BEGIN + 16_000)
        assert await series.prune(BEGIN + 5 * 3600) > 0
        after = await series.energy(uids, BEGIN + 1800, BEGIN + 16_000)
        assert after.joules == pytest.approx(before.joules)
        assert after.known == pytest.approx(before.known)
        with pytest.raises(Compacted, match="600 s"):
            await series.window("power", uids, BEGIN, BEGIN + 600)
        with pytest.raises(Compacted):
            await series.window("power", uids, BEGIN, BEGIN + 600, step=60)
        coarse = await series.window("power", uids, BEGIN, BEGIN + 3600, step=600)
        assert coarse.values == pytest.approx(np.tile([100.0, 200.0], (6, 1)))
        cut = await series.energy(uids, BEGIN + 100, BEGIN + 400)
        assert cut.joules == pytest.approx([30_000.0, 60_000.0], rel=0.001)
        assert await series.prune(BEGIN + 100 * 3600) > 0
        assert (await series.energy(uids, BEGIN, BEGIN + 3600)).known.tolist() == [0.0, 0.0]
    finally:
        await series.close()


async def test_the_latest_is_no_older_than_asked(make_series: Maker) -> None:
    series = make_series(clock=lambda: BEGIN + 50.0)
    await series.start()
    try:
        await series.append([at(BEGIN, {1: 10.0, 2: 20.0}), at(BEGIN + 40, {2: 25.0})])
        found = await series.latest("power", np.array([1, 2, 3]), 30)
        assert np.nan_to_num(found.values, nan=-1).tolist() == [-1, 25, -1]
        assert np.nan_to_num(found.times, nan=-1).tolist() == [-1, BEGIN + 40, -1]
        assert (await series.latest("temperature", None, 30)).uids.tolist() == []
    finally:
        await series.close()


async def test_nodes_that_come_and_go_keep_their_own_values(series: Series) -> None:
    for second in range(0, 400, 5):
        await series.append([at(BEGIN + second, {100 - second // 5: float(second), 500: 1.0})])
    found = await series.window("power", None, BEGIN, BEGIN + 400)
    for second in range(0, 400, 5):
        assert of(found, 100 - second // 5) == {BEGIN + second: second}
    assert len(of(found, 500)) == 80


async def test_samples_of_one_second_need_not_be_of_one_instant(series: Series) -> None:
    for second in range(100):
        await series.append([at(BEGIN + second + 0.2, {1: 100.0}), at(BEGIN + second + 0.7, {2: 100.0})])
    found = await series.energy(np.array([1, 2]), BEGIN + 10, BEGIN + 90)
    assert (abs(found.joules - 8000) <= found.error).all()


@pytest.mark.parametrize(
    "wrong",
    [
        Samples(metric="power", time=BEGIN, uids=np.array([2, 1]), values=np.array([1.0, 2.0])),
        Samples(metric="power", time=BEGIN, uids=np.array([1, 2]), values=np.array([1.0])),
        Samples(metric="power", time=math.nan, uids=np.array([1]), values=np.array([1.0])),
        Samples(metric="horses", time=BEGIN, uids=np.array([1]), values=np.array([1.0])),
    ],
)
async def test_what_makes_no_sense_is_refused_whole(series: Series, wrong: Samples) -> None:
    with pytest.raises(BadRequest):
        await series.append([at(BEGIN, {1: 1.0}), wrong])
    assert len((await series.window("power", None, BEGIN, BEGIN + 1)).times) == 0


async def test_questions_that_make_no_sense_are_refused(series: Series) -> None:
    with pytest.raises(BadRequest, match="end"):
        await series.window("power", None, BEGIN, BEGIN)
    with pytest.raises(BadRequest, match="step"):
        await series.window("power", None, BEGIN, BEGIN + 100, step=90)
    with pytest.raises(BadRequest, match="energy"):
        await series.total("energy", None, BEGIN, BEGIN + 100)


async def test_after_it_was_closed_it_says_so(make_series: Maker) -> None:
    series = make_series()
    await series.start()
    await series.close()
    await series.close()
    with pytest.raises(Unavailable, match="closed"):
        await series.append([at(BEGIN, {1: 1.0})])
