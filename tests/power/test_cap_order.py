"""Who goes first where several requests for caps are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from strata.power.capping.request_order import CapOrder, Turn


class Order:
    """Requests one after the other, all of them entered."""

    def __init__(self, stack: ExitStack) -> None:
        self.order = CapOrder()
        self._stack = stack
        self._asked = 0.0

    def ask(self, falls: list[int], rises: list[int] = [], accel: bool = False) -> Turn:  # noqa: B006
        self._asked += 1
        uids = np.array([*falls, *rises], dtype=np.int64)
        up = np.arange(len(uids)) >= len(falls)
        turn = Turn(self._asked, uids, np.full(len(uids), accel), up, np.empty(0, np.int64))
        return self._stack.enter_context(self.order.entered(turn))

    def claim(self, turn: Turn) -> list[int]:
        """The uids of what may be done now."""
        return turn.uids[self.order.claim(turn, np.arange(len(turn.uids)))].tolist()  # type: ignore[no-any-return]

    def end(self, turn: Turn) -> None:
        rows = np.flatnonzero(turn.claimed)
        self.order.give_back(turn, rows, rows)

    def wait(self, turn: Turn) -> None:
        """There was no room for what it claimed."""
        self.order.give_back(turn, np.flatnonzero(turn.claimed), np.empty(0, np.int64))
        turn.stuck = True


@pytest.fixture
def some() -> Iterator[Order]:
    with ExitStack() as stack:
        yield Order(stack)


def test_what_falls_does_not_wait_for_what_rises(some: Order) -> None:
    rising = some.ask([], [1, 2])
    assert some.claim(rising) == [1, 2]
    assert some.claim(some.ask([3])) == [3]


def test_what_rises_waits_for_what_was_to_fall_before(some: Order) -> None:
    falling, rising = some.ask([1]), some.ask([], [2])
    assert some.claim(rising) == []
    some.claim(falling)
    assert some.claim(rising) == []
    some.end(falling)
    assert some.claim(rising) == [2]


def test_who_waits_for_room_keeps_nobody_waiting_and_is_overtaken(some: Order) -> None:
    waiting = some.ask([1], [2])
    some.claim(waiting)
    some.wait(waiting)
    assert some.claim(some.ask([], [2, 3])) == [2, 3]
    assert waiting.overtaken.tolist() == [False, True]
    assert waiting.open.tolist() == [True, False]


def test_a_node_gets_one_command_at_a_time_in_the_order_of_the_requests(some: Order) -> None:
    first, second, third = some.ask([1]), some.ask([1]), some.ask([1])
    assert some.claim(first) == [1]
    assert some.claim(second) == some.claim(third) == []
    some.end(first)
    assert some.claim(third) == []
    assert some.claim(second) == [1]
    some.end(second)
    assert some.claim(third) == [1]


def test_a_rise_that_has_not_begun_gives_way_to_a_later_fall_of_the_same_node(some: Order) -> None:
    rising = some.ask([], [1, 2])
    assert some.claim(some.ask([2])) == [2]
    assert some.claim(rising) == [1]
    assert rising.overtaken.tolist() == [False, True]


def test_a_node_and_its_accelerators_are_capped_one_after_the_other_and_do_not_overtake_each_other(
    some: Order,
) -> None:
    node = some.ask([], [1])
    accelerators = some.ask([1], accel=True)
    assert some.claim(accelerators) == [1]
    assert some.claim(node) == []
    some.end(accelerators)
    assert some.claim(node) == [1]


async def test_who_waits_hears_of_it_when_a_node_is_free_or_a_request_over(some: Order) -> None:
    first, second = some.ask([1]), some.ask([1])
    some.claim(first)
    assert some.claim(second) == []
    waits = asyncio.create_task(some.order.change(600))
    await asyncio.sleep(0)
    some.end(first)
    async with asyncio.timeout(60):
        await waits
    await some.order.change(0.01)
