"""What only a shared database has: several writers, and being away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np
import pytest
from series_support import BEGIN, at, steady

from strata.core.errors import Refused, Unavailable
from strata.power.series import postgres as series_postgres
from strata.power.series.series import Series
from support.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.server]

Starter = Callable[[str], Awaitable[Series]]


@pytest.fixture
async def writer(database: str) -> AsyncIterator[Starter]:
    """Starts a controller's series under a name."""
    found: list[Series] = []

    async def start(name: str) -> Series:
        series = Series.in_postgres(database, name, clock=lambda: BEGIN + 1000.0, flush_every=1000, lateness=30.0)
        found.append(series)
        await series.start()
        return series

    yield start
    for series in found:
        await series.close()


async def crash(series: Series) -> None:
    """End it as a crash does."""
    await asyncio.to_thread(series._intake.stop)
    series._started = False


async def test_each_sees_what_the_others_wrote(writer: Starter) -> None:
    one, two = await writer("one"), await writer("two")
    await one.append(steady(BEGIN, 200, {1: 100.0}))
    await two.append(steady(BEGIN, 150, {2: 50.0}))
    await one.flush()
    await two.flush()
    for series in (one, two):
        total = await series.total("power", None, BEGIN, BEGIN + 300)
        assert total.sums.tolist() == [150.0] * 150 + [100.0] * 50
        assert total.counts.tolist() == [2] * 150 + [1] * 50
        energy = await series.energy(np.array([1, 2]), BEGIN, BEGIN + 140)
        assert energy.joules == pytest.approx([14_000, 7_000])
        assert (await series.latest("power", None, 1000)).values.tolist() == [100.0, 50.0]
        window = await series.window("power", None, BEGIN, BEGIN + 300)
        assert (window.uids.tolist(), len(window.times)) == ([1, 2], 200)


async def test_a_node_may_pass_from_one_to_the_other(writer: Starter) -> None:
    one, two = await writer("zulu"), await writer("alpha")
    await one.append(steady(BEGIN, 90, {1: 100.0}))
    await two.append(steady(BEGIN + 90, 200, {1: 100.0}))
    await one.close()
    found = await two.energy(np.array([1]), BEGIN, BEGIN + 250)
    assert found.joules[0] == pytest.approx(25_000)
    assert found.known[0] == pytest.approx(1.0)
    assert len((await two.window("power", None, BEGIN, BEGIN + 250)).times) == 250


async def test_two_that_see_the_same_node_do_not_count_it_twice(writer: Starter) -> None:
    one, two = await writer("one"), await writer("two")
    for series in (one, two):
        await series.append(steady(BEGIN, 300, {1: 100.0}))
        await series.flush()
    found = await one.energy(np.array([1]), BEGIN, BEGIN + 290)
    assert found.joules[0] == pytest.approx(29_000)


async def test_what_one_that_died_had_in_its_journal_is_taken_over(writer: Starter) -> None:
    one = await writer("one")
    await one.append(steady(BEGIN, 40, {1: 100.0}))
    await one.flush()
    await crash(one)
    two = await writer("two")
    await two.append(steady(BEGIN + 40, 200, {1: 100.0}))
    assert len((await two.window("power", None, BEGIN, BEGIN + 300)).times) == 240
    back = await writer("one")
    assert len((await back.window("power", None, BEGIN, BEGIN + 100)).times) >= 40


async def test_one_name_has_one_writer(writer: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_postgres, "PATIENCE", 0.01)
    await writer("one")
    with pytest.raises(Refused, match="name of its own"):
        await writer("one")


async def test_while_the_database_is_away_samples_are_kept_in_memory(
    writer: Starter, postgres_server: Postgres
) -> None:
    series = await writer("one")
    await series.append(steady(BEGIN, 100, {1: 100.0}))
    await asyncio.to_thread(postgres_server.kill)
    try:
        await series.append(steady(BEGIN + 100, 100, {1: 100.0}))
        assert "PostgreSQL" in series.trouble
        with pytest.raises(Unavailable):
            await series.flush()
        with pytest.raises(Unavailable):
            await series.window("power", None, BEGIN, BEGIN + 100)
    finally:
        await asyncio.to_thread(postgres_server.start)
    await series.flush()
    assert series.trouble == ""
    assert len((await series.window("power", None, BEGIN, BEGIN + 300)).times) == 200
    await crash(series)
    again = await writer("one")
    assert len((await again.window("power", None, BEGIN, BEGIN + 300)).times) == 200


async def test_of_a_database_that_is_away_for_long_the_oldest_is_given_up_and_counted(
    writer: Starter, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = await writer("one")

    def away(_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(series._intake.store, "put", away)
        for second in range(0, 1000, 10):
            await series.append([at(BEGIN + second, {1: 100.0})])
        await series.append([at(BEGIN + 1050, {1: 100.0})])
    assert series.refused.lost == 18
    total = await series.total("power", None, BEGIN, BEGIN + 2000)
    assert total.times[0] == BEGIN + 180


async def test_an_address_that_leads_nowhere_is_said_without_its_password() -> None:
    series = Series.in_postgres("host=/nonexistent user=strata password=hunter2", "one")
    with pytest.raises(Unavailable) as caught:
        await series.start()
    assert "hunter2" not in str(caught.value)
    await series.close()
