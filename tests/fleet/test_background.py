"""Work that can wait: many turns while nothing else is done, few while much is."""

from __future__ import annotations

import asyncio

import pytest

from strata.fleet import background
from strata.fleet.background import LEAST, MOST, Background


class Machine:
    """Time that passes when somebody sleeps, and how much of it the processor was busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.used = 0.0
        self.busy = 0.0
        real = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.now += seconds
            self.used += seconds * self.busy
            await real(0)

        monkeypatch.setattr(background.asyncio, "sleep", sleep)

    def background(self) -> Background:
        return Background(share=0.1, used=lambda: self.used, clock=lambda: self.now)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def turns_in(machine: Machine, work: Background, seconds: float, *, cost: float = 1.0) -> int:
    end, count = machine.now + seconds, 0
    while machine.now < end:
        await work.turn(cost)
        count += 1
    return count


async def test_there_are_many_turns_while_nothing_else_is_done_and_few_while_much_is(machine: Machine) -> None:
    work = machine.background()
    machine.busy = 0.02
    await turns_in(machine, work, 30)
    assert work.rate == MOST
    machine.busy = 0.9
    await turns_in(machine, work, 30)
    assert work.rate == LEAST
    assert await turns_in(machine, work, 10) >= 10 * LEAST * 0.9, "they never end altogether"


async def test_what_costs_more_comes_less_often(machine: Machine) -> None:
    work = machine.background()
    machine.busy = 0.1  # just what it may be
    cheap = await turns_in(machine, work, 10)
    dear = await turns_in(machine, work, 10, cost=4.0)
    assert cheap == pytest.approx(4 * dear, rel=0.1)


async def test_whoever_waits_for_a_turn_that_was_far_off_has_it_soon_when_the_machine_falls_idle(
    machine: Machine,
) -> None:
    work = machine.background()
    machine.busy = 1.0
    await turns_in(machine, work, 30)
    await work.turn(100.0)  # the next would be due in 25 s
    machine.busy, before = 0.0, machine.now
    await work.turn()
    assert machine.now - before < 5.0


async def test_turns_are_given_in_the_order_in_which_they_were_asked_for(machine: Machine) -> None:
    work, order = machine.background(), []

    async def one(name: int) -> None:
        await work.turn()
        order.append(name)

    await asyncio.gather(*(one(name) for name in range(10)))
    assert order == list(range(10))
