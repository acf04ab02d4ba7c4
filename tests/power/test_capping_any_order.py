"""Whatever order commands take effect in, whichever are lost, whenever the controller dies: the limit holds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.power.capping.ledger import Ledger
from strata.power.capping.split import propose
from strata.power.capping.terms import Commands, Limits, Ratings, Use

NODES = 6
SETTLE = 60.0
STEPS = 300
RATINGS = Ratings.alike(NODES, idle=50, boot=120, low=200, high=400)
GROUPS = np.array([0, 0, 1, 1, -1, -1])
WATTS = [np.nan, 200.0, 215.0, 240.0, 300.0, 370.0, 400.0]


class World:
    """Nodes with caps of their own, a wire that loses and delays, and a controller that dies."""

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.now = 1000.0
        read = np.array(luck.choices(WATTS, k=NODES))
        self.cap = np.nan_to_num(read, nan=400.0)
        self.use = np.where(np.arange(NODES) < luck.randint(2, NODES), Use.BUSY, Use.IDLE).astype(np.int8)
        self.wire: list[tuple[int, float, float]] = []
        self.answers: list[tuple[int, float, float]] = []
        self.ledger = Ledger(RATINGS, caps=read)
        self.ledger.use = self.use.copy()
        self.limits = Limits(
            site=float(self.ledger.worst().sum()) + luck.choice([0.0, 40.0, 100.0, 250.0, 2000.0]),
            ramp_up=luck.choice([np.inf, 70.0, 150.0]),
            ramp_down=luck.choice([np.inf, 100.0]),
            floor=luck.choice([0.0, 900.0]),
        )
        self.kept = self.ledger.snapshot()
        self.history = [(self.now, self.drawn())]

    def drawn(self) -> float:
        """The most that the nodes can really draw."""
        return float(np.where(self.use == Use.BUSY, self.cap, 50.0).sum())

    def hand_over(self, commands: Commands) -> None:
        for row, watts in zip(*commands, strict=True):
            self.wire.append((int(row), float(watts), self.now + SETTLE))

    def rebalance(self) -> None:
        targets = np.array(self.luck.choices(WATTS, k=NODES))
        groups = GROUPS if self.luck.random() < 0.5 else None
        commands = propose(self.ledger, self.now, targets, self.limits, groups=groups)
        self.ledger.send(commands, self.now, self.now + SETTLE)
        self.kept = self.ledger.snapshot()
        if self.luck.random() < 0.1:
            self.hand_over(Commands(commands.rows[::2], commands.watts[::2]))
            self.die()
        else:
            self.hand_over(commands)

    def launch(self) -> None:
        idle = np.flatnonzero(self.use == Use.IDLE)
        rows = idle[: self.luck.randint(0, len(idle))]
        caps = np.full(len(rows), self.luck.choice([200.0, 300.0, 400.0]))
        commands = self.ledger.launch(rows, caps, self.limits, self.now, self.now + SETTLE)
        if commands is not None:
            self.kept = self.ledger.snapshot()
            self.hand_over(commands)
            self.use[rows] = Use.BUSY

    def finish(self) -> None:
        row = self.luck.randrange(NODES)
        if self.use[row] == Use.BUSY:
            self.use[row] = Use.IDLE
            self.ledger.occupy(np.array([row]), Use.IDLE, self.now)

    def take_effect(self) -> None:
        """Some of what is under way, in any order; of some the answer is lost."""
        self.luck.shuffle(self.wire)
        for _ in range(self.luck.randint(0, len(self.wire))):
            row, watts, until = self.wire.pop()
            self.cap[row] = watts
            if self.luck.random() < 0.8:
                self.answers.append((row, watts, until))
            self.check()

    def answer(self) -> None:
        for row, watts, _ in self.answers:
            self.ledger.confirm(np.array([row]), np.array([watts]), self.now)
        self.answers.clear()

    def lose(self) -> None:
        if self.wire:
            self.wire.pop(self.luck.randrange(len(self.wire)))

    def be_refused(self) -> None:
        if self.wire:
            row, _, _ = self.wire.pop(self.luck.randrange(len(self.wire)))
            self.ledger.refuse(np.array([row]), self.now)

    def wait(self) -> None:
        self.now += self.luck.choice([1.0, 7.0, 20.0, 45.0])
        self.wire = [sent for sent in self.wire if sent[2] > self.now]
        self.answers = [sent for sent in self.answers if sent[2] > self.now]

    def look(self) -> None:
        unread = np.array([self.luck.random() < 0.2 for _ in range(NODES)])
        self.ledger.observe(np.arange(NODES), np.where(unread, np.nan, self.cap), self.now)

    def die(self) -> None:
        """All that is not in the kept ledger is forgotten; nobody hears the answers."""
        self.answers.clear()
        self.ledger = Ledger.restore(RATINGS, self.kept)
        self.ledger.occupy(np.flatnonzero(self.use == Use.IDLE), Use.IDLE, self.now)

    def move_the_limit(self) -> None:
        """Down as far as the ledger is under it already: what may be drawn cannot be taken back at once."""
        site = float(self.ledger.worst().sum()) + self.luck.choice([0.0, 60.0, 2000.0])
        self.limits = Limits(site=site, ramp_up=self.limits.ramp_up, floor=self.limits.floor)

    def check(self) -> None:
        assert self.drawn() <= self.limits.site
        assert (np.where(self.use == Use.BUSY, self.cap, 50.0) <= self.ledger.worst()).all()
        self.history = [(when, watts) for when, watts in self.history if when > self.now - 60.0]
        self.history.append((self.now, self.drawn()))
        risen = np.maximum(np.diff([watts for _, watts in self.history]), 0.0).sum()
        assert risen <= self.limits.ramp_up

    def step(self) -> None:
        often = [self.rebalance, self.take_effect, self.answer, self.wait] * 4
        seldom = [self.launch, self.finish, self.lose, self.be_refused, self.look, self.die, self.move_the_limit]
        self.luck.choice(often + seldom)()
        self.check()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_limit_and_the_ramp_hold_at_every_instant(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(STEPS):
        world.step()
