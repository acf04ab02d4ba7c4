"""The governor: a policy on a machine that answers, does not answer, and outlives it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from strata.core.errors import Unavailable
from strata.power.capping.ledger_store import HEAD, LedgerStore
from strata.power.capping.sender import Sent
from strata.power.capping.terms import Column, Commands, Ratings, Rows, Use
from strata.power.policies.policy import parse
from strata.power.policies.view import Jobs, Waiting
from strata.power.site.governed_fleet import UNSEEN, GovernedFleet, Look
from strata.power.site.governor import HOLD, Governor
from strata.store.memory import MemoryStore
from strata.store.protocol import Put

NODES = 10


class Machine(GovernedFleet):
    """Nodes that hold caps; ``deaf`` ones take them and say nothing."""

    def __init__(self) -> None:
        self.caps = np.full(NODES, 400.0)
        self.use = np.full(NODES, Use.BUSY, np.int8)
        self.deaf = np.zeros(NODES, np.bool_)
        self.unreachable = np.zeros(NODES, np.bool_)
        self.switched: list[tuple[list[int], bool]] = []
        self.sent = 0

    async def look(self) -> Look:
        nobody, number = np.empty(0), np.full(NODES, -1, np.int64)
        jobs = Jobs(*[nobody] * 10)
        return Look(self.use, number, np.zeros(NODES), number + 1, number + 1, jobs, Waiting(number[:0], number[:0]))

    async def read_caps(self, rows: Rows) -> Column:
        return np.where(self.unreachable[rows], np.nan, self.caps[rows])

    async def set_caps(self, commands: Commands) -> Sent:
        rows, watts = commands
        there = ~self.unreachable[rows]
        self.caps[rows[there]] = watts[there]
        self.sent += len(rows)
        return Sent(done=there & ~self.deaf[rows], refused=np.zeros(len(rows), np.bool_), why={})

    async def switch(self, rows: Rows, on: bool) -> None:
        self.switched.append((rows.tolist(), on))


class Memory(LedgerStore):
    """A store in memory that may be away."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        super().__init__(self.memory, np.arange(NODES), lambda: True)
        self.away = False
        self.tried = asyncio.Event()

    async def save(self, kept: bytes) -> None:
        self.tried.set()
        if self.away:
            raise Unavailable("the store is away")
        await super().save(kept)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def governor(machine: Machine, shelf: Memory, clock: Clock, text: str = "limit: 3kW") -> Governor:
    ratings = Ratings.alike(NODES, idle=50, boot=150, low=200, high=400)
    return Governor(parse(text, source="test"), ratings, machine, shelf, clock=clock)


async def test_nodes_above_the_limit_are_lowered_at_once() -> None:
    machine = Machine()
    made = governor(machine, Memory(), Clock())
    await made.round()
    assert machine.caps.sum() <= 3000
    assert (made.status().over_w, made.status().in_flight) == (0.0, 0)


async def test_nothing_is_sent_that_was_not_kept_first() -> None:
    machine, shelf = Machine(), Memory()
    shelf.away = True
    made = governor(machine, shelf, Clock())
    with pytest.raises(Unavailable):
        await made.round()
    assert machine.sent == 0
    assert made.status().in_flight == NODES


async def test_a_successor_counts_what_its_predecessor_had_under_way_and_looks() -> None:
    machine, shelf, clock = Machine(), Memory(), Clock()
    machine.deaf[:] = True
    await governor(machine, shelf, clock).round()
    after = governor(machine, shelf, clock)
    await after.round()
    assert after.status().allowed_w == 4000, "lowered, and nobody has seen it"
    clock.now += 61
    await after.round()
    assert after.status().allowed_w <= 3000


async def test_the_others_make_up_for_a_node_out_of_reach() -> None:
    machine, clock = Machine(), Clock()
    machine.unreachable[0] = True
    made = governor(machine, Memory(), clock)
    await made.round()
    clock.now += 61
    await made.round()
    assert machine.caps[0] == 400.0
    assert machine.caps.sum() <= 3000 and made.status().allowed_w <= 3000


async def test_a_damaged_ledger_is_replaced_by_what_nodes_say_once_nothing_is_under_way() -> None:
    machine, shelf, clock = Machine(), Memory(), Clock()
    machine.caps[:] = 250.0
    await shelf.memory.txn([Put(HEAD, b"damaged")])
    made = governor(machine, shelf, clock)
    await made.round()
    assert made.status().allowed_w == 4000 and machine.sent == 0
    clock.now += 61
    await made.round()
    assert made.status().allowed_w == 2500


async def test_idle_nodes_count_with_their_caps_for_a_job_may_begin_at_any_moment() -> None:
    machine = Machine()
    machine.use[:] = Use.IDLE
    made = governor(machine, Memory(), Clock(), "limit: 5kW")
    await made.round()
    assert made.status().allowed_w == 4000


async def test_a_successor_believes_that_nodes_are_off_only_once_what_it_sees_cannot_be_old() -> None:
    machine, shelf, clock = Machine(), Memory(), Clock()
    machine.use[:] = Use.OFF
    before = governor(machine, shelf, clock, "limit: 5kW")
    await before.round()
    assert (await before.power_on(np.arange(4))).all()
    after = governor(machine, shelf, clock, "limit: 5kW")
    await after.round()
    assert after.status().allowed_w == 1600, "its predecessor let them start, and nobody has seen it yet"
    clock.now += HOLD
    await after.round()
    assert after.status().allowed_w == 0


async def test_a_node_that_was_told_to_start_counts_as_starting_until_it_is_up_or_has_had_its_time() -> None:
    machine, clock = Machine(), Clock()
    machine.use[:] = Use.OFF
    made = governor(machine, Memory(), clock, "limit: 2kW\nidle-pool: {low: 2, high: 3}")
    await made.round()
    assert machine.switched == [([0, 1], True)]
    await made.round()
    assert made.status().allowed_w == 800, "it is seen as off still, and may start at any moment"
    machine.use[0] = Use.IDLE
    await made.round()
    assert len(machine.switched) == 1
    clock.now += HOLD
    await made.round()
    assert machine.switched[1:] == [([1], True)], "the other one has had its time, and is started anew"


async def test_the_idle_pool_switches_nodes() -> None:
    machine = Machine()
    machine.use[:] = [Use.BUSY] * 4 + [Use.IDLE] * 6
    text = "limit: 5kW\nidle-pool: {low: 1, high: 2}"
    await governor(machine, Memory(), Clock(), text).round()
    assert machine.switched == [([4, 5, 6, 7], False)]
    machine.use[4:] = Use.OFF
    machine.switched.clear()
    await governor(machine, Memory(), Clock(), text).round()
    assert machine.switched == [([4], True)]


async def test_nodes_that_are_being_stopped_are_not_idle_while_nobody_can_see_them() -> None:
    machine = Machine()
    machine.use[:] = [Use.BUSY] * 4 + [Use.IDLE] * 6
    made = governor(machine, Memory(), Clock(), "limit: 5kW\nidle-pool: {low: 1, high: 2}")
    await made.round()
    machine.use[4:8] = UNSEEN
    await made.round()
    assert machine.switched == [([4, 5, 6, 7], False)], "the other two stay"


async def test_it_runs_until_it_is_stopped_and_survives_a_store_that_is_away() -> None:
    machine, shelf = Machine(), Memory()
    shelf.away = True
    made = governor(machine, shelf, Clock(), "limit: 3kW\nevery: 1s")
    await made.start()
    await shelf.tried.wait()
    await asyncio.sleep(0)
    assert "the store is away" in made.status().error
    await made.stop()
    assert machine.sent == 0 and (machine.caps == 400).all()
