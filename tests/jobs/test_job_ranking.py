"""Which target a job goes to where several can run it: by waiting, data and energy, with every figure shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.jobs.resources import Asked
from strata.jobs.settings import BrokerSettings, JobSettings, TargetTraits
from strata.jobs.submission.broker import Choice, choose
from strata.jobs.submission.ranking import mean_price, weigh
from strata.jobs.submission.records import Copy, JobDocument
from strata.jobs.submission.targets import Target
from strata.schedulers.jobs import Ability, Array, JobSeen, Queue, Work
from strata.schedulers.runner import Place, Runner

NOW = 1_794_843_900.0  # 15:45 UTC
HOUR = 3600.0


class Fake:
    """A scheduler that says when a job would begin, or does not."""

    ability = Ability(queues=False)

    def __init__(self, starts: float | None) -> None:
        self.starts = starts

    async def submit(self, work: Work) -> str:
        return "1"

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        return ()

    async def cancel(self, account: str, ids: Sequence[str]) -> None: ...

    async def hold(self, account: str, ids: Sequence[str]) -> None: ...

    async def release(self, account: str, ids: Sequence[str]) -> None: ...

    async def queues(self) -> Sequence[Queue]:
        return ()

    async def expected(self, work: Work) -> float | None:
        return self.starts


def chosen(document: JobDocument, starts: Mapping[str, float | None], **settings: Any) -> Choice:
    """``starts``: target → after how many hours it would begin there."""
    targets = [
        Target(name, "slurm", Fake(None if at is None else NOW + at * HOUR), Runner(Place()))
        for name, at in starts.items()
    ]

    def work(target: Target, queue: str | None) -> Work:
        return Work(key="k", name="n", script="#!/bin/sh\n", account="a", workdir="/", stdout="/o")

    return asyncio.run(
        choose(targets, document, bound=lambda target: "", work=work, settings=JobSettings(**settings), now=NOW)
    )


def order(choice: Choice) -> list[str]:
    return [one.target.name for one in choice.candidates]


def document(**more: Any) -> JobDocument:
    return JobDocument(command="true", **more)


def test_without_anything_declared_the_one_that_begins_first_is_taken_and_silence_comes_last() -> None:
    assert order(chosen(document(), {"a": 3.0, "b": None, "c": 0.5})) == ["c", "a", "b"]
    assert order(chosen(document(), {"a": None, "b": None})) == ["a", "b"]


def test_data_that_is_near_is_worth_as_much_waiting_as_the_site_says() -> None:
    asked = document(data=("/lustre/set",), stage_in=(Copy(source="/lustre/in/x", to="/tmp/x"),))
    near = {"b": TargetTraits(near=("/lustre",)), "a": TargetTraits(near=("/lustre2",))}
    assert order(chosen(asked, {"a": 0.0, "b": 1.5}, targets=near)) == ["b", "a"]
    assert order(chosen(asked, {"a": 0.0, "b": 2.5}, targets=near)) == ["a", "b"]
    assert order(chosen(asked, {"a": 0.0, "b": 2.5}, targets=near, broker=BrokerSettings(far=2.0))) == ["b", "a"]


def test_energy_is_priced_by_the_jobs_own_limit_or_by_what_a_node_draws_and_by_the_time_of_the_day() -> None:
    asked = document(resources=Asked(nodes=10, tasks=10, time=7200))
    known = {
        "dear": TargetTraits(price=0.4, watts=1000),
        "night": TargetTraits(tariff={"06:00": 0.4, "17:00": 0.1}, watts=1000),
    }
    found = chosen(asked, {"dear": 0.0, "night": 1.25}, targets=known)
    assert order(found) == ["night", "dear"]
    night = found.candidates[0].figures
    assert night is not None
    assert (night.energy, night.price) == (20.0, pytest.approx(0.1))
    capped = document(resources=Asked(nodes=10, tasks=10, time=7200, power=100))
    limited = chosen(capped, {"dear": 0.0, "night": 1.25}, targets=known)
    assert order(limited) == ["dear", "night"], "two kWh are not worth an hour of waiting"
    many = document(resources=Asked(power=100), array=Array(last=9))
    assert weigh(many, {"x": NOW}, {}, BrokerSettings(), NOW)["x"].energy == 1.0


def test_what_is_not_declared_is_no_advantage() -> None:
    asked = document(resources=Asked(time=3600))
    known = {"told": TargetTraits(price=0.2, watts=2000)}
    figures = weigh(asked, {"told": NOW, "silent": NOW}, known, BrokerSettings(), NOW)
    assert figures["told"].cost == figures["silent"].cost == pytest.approx(0.4)
    assert "not known" in figures["silent"].words


def test_the_explanation_shows_every_figure_of_every_target() -> None:
    asked = document(data=("s3://bucket/set",), resources=Asked(time=3600))
    known = {
        "a": TargetTraits(price=0.3, watts=500, near=("s3://bucket",)),
        "b": TargetTraits(price=0.1, watts=500),
    }
    found = chosen(asked, {"a": 0.5, "b": 0.25}, targets=known)
    first = found.candidates[0].considered("it comes first", taken=True)
    assert (first.target, first.wait, first.far, first.energy, first.price) == ("a", 0.5, 0, 0.5, 0.3)
    assert first.cost == pytest.approx(0.65)
    assert found.candidates[0].figures is not None
    assert found.candidates[0].figures.words == (
        "it waits 0.50 h (0.50), 0 of 1 places of its data are far (0.00), 0.50 kWh at 0.300 (0.15): 0.65 in all"
    )
    other = found.candidates[1].considered("another target comes first", taken=False)
    assert other.cost == pytest.approx(1.3)


def test_one_target_is_compared_with_nobody() -> None:
    [only] = chosen(document(), {"a": 0.0}).candidates
    assert only.figures is None
    assert only.considered("it can", taken=True).cost is None


@given(
    starts=st.dictionaries(st.sampled_from("abcd"), st.none() | st.floats(0, 100), min_size=2),
    prices=st.dictionaries(st.sampled_from("abcd"), st.floats(0, 10)),
)
def test_the_same_figures_always_make_the_same_order_whatever_the_order_of_asking(
    starts: dict[str, float | None], prices: dict[str, float]
) -> None:
    known = {name: TargetTraits(price=price, watts=100) for name, price in prices.items()}
    told = {name: None if at is None else NOW + at * HOUR for name, at in starts.items()}
    there = weigh(document(), told, known, BrokerSettings(), NOW)
    back = weigh(document(), dict(reversed(told.items())), known, BrokerSettings(), NOW)
    assert there == back
    assert all(one.cost >= 0 for one in there.values())


@given(begins=st.integers(0, 10**6), seconds=st.integers(1, 10**6))
def test_a_mean_price_is_between_the_least_and_the_most_of_the_tariff(begins: int, seconds: int) -> None:
    traits = TargetTraits(tariff={"06:00": 0.4, "17:00": 0.3, "22:00": 0.1})
    found = mean_price(traits, begins, seconds)
    assert found is not None
    assert 0.1 - 1e-9 <= found <= 0.4 + 1e-9
    hours = sum(
        next(
            price
            for at, price in ((22, 0.1), (17, 0.3), (6, 0.4), (0, 0.1))
            if (begins // 3600 * 3600 + n * 3600) // 3600 % 24 >= at
        )
        for n in range(24)
    )
    assert mean_price(traits, begins, 86_400) == pytest.approx(hours / 24)


def test_a_tariff_has_times_of_the_day() -> None:
    with pytest.raises(BadRequest, match="22:00"):
        JobSettings(targets={"a": TargetTraits(tariff={"25:00": 1.0})}).check()
