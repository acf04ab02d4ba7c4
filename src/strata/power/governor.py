"""Runs a policy on the machine: looks, asks the policy, and sends what the ledger of caps allows.

It knows the machine through ``Plant`` and keeps its ledger on a ``Shelf`` before anything is sent. There must be one
governor for a machine at a time. When it ends or dies, every node keeps the cap that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.errors import Corrupt, StrataError
from strata.power.capping import SETTLE, Column, Commands, Ledger, Limits, Mask, Ratings, Rows, Use
from strata.power.policy import Policy
from strata.power.policy_queues import first_shares
from strata.power.policy_step import step
from strata.power.policy_view import Jobs, View, Waiting

log = logging.getLogger(__name__)

HOLD = 600.0
"""Seconds for which a node counts as starting, or as busy, before it has been seen so: what is seen may be old."""


class Look(NamedTuple):
    """What is seen of the machine: as in ``View``, but for what the governor knows itself."""

    use: NDArray[np.int8]
    job: Rows
    idle_since: Column
    cabinet: Rows
    pdu: Rows
    jobs: Jobs
    waiting: Waiting


class Answers(NamedTuple):
    """What became of commands, row by row. Neither: it is not known."""

    done: Mask
    refused: Mask


class Plant(Protocol):
    """The machine. Rows are places in the list of nodes that it was made with."""

    async def look(self) -> Look:
        """What is known now, without asking the hardware."""

    async def read_caps(self, rows: Rows) -> Column:
        """The caps that nodes have, asked of them now. Without a cap: the most that they draw; no answer: NaN."""

    async def set_caps(self, commands: Commands) -> Answers:
        """Set caps. What is still under way when this is cancelled must not take effect later than ``SETTLE``."""

    async def switch(self, rows: Rows, on: bool) -> None:
        """Have nodes started or stopped."""


class Shelf(Protocol):
    """Where the ledger outlives the governor."""

    async def load(self) -> bytes | None:
        """What was kept last."""

    async def save(self, kept: bytes) -> None:
        """Keep it. Returns when it is safe."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a governor stands."""

    policy: str
    limit_w: float
    allowed_w: float
    """The most that may be drawn now, given all that is not known."""
    in_flight: int
    over_w: float
    """By how much ``allowed_w`` is above the limit; it is being lowered."""
    error: str
    """Why the last round was not finished; empty: it was."""


class Governor:
    """One policy, one machine."""

    def __init__(
        self,
        policy: Policy,
        ratings: Ratings,
        plant: Plant,
        shelf: Shelf,
        *,
        scheduler_asks: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``scheduler_asks``: idle nodes get no job without ``admit``. Otherwise they count with their caps."""
        self.policy = policy
        self.limits: Limits = policy.limits()
        self._ratings, self._plant, self._shelf, self._clock = ratings, plant, shelf, clock
        self._asks = scheduler_asks
        count = len(ratings.high)
        self._queue = first_shares(policy.queues, count) if policy.queues else np.full(count, -1, np.int64)
        self._ledger: Ledger | None = None
        self._held = np.full(count, -np.inf)
        self._booking = asyncio.Lock()
        self._begun = 0.0
        self._error = ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over from whoever was before, and go on until ``stop``."""
        self._task = asyncio.create_task(self._go_on(), name="power governor")

    async def stop(self) -> None:
        """Stop. Caps stay as they are."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def status(self) -> Status:
        """Where it stands."""
        allowed = float(self._ledger.worst().sum()) if self._ledger else float(self._ratings.high.sum())
        return Status(
            policy=self.policy.name,
            limit_w=self.limits.site,
            allowed_w=allowed,
            in_flight=int(self._ledger.in_flight.sum()) if self._ledger else 0,
            over_w=max(allowed - self.limits.site, 0.0),
            error=self._error,
        )

    async def round(self) -> None:
        """Look, decide, act: once."""
        now = self._clock()
        ledger = self._ledger or await self._take_over(now)
        if ledger is None:
            return
        self._ledger = ledger
        overdue = ledger.overdue(now)
        if len(overdue):
            ledger.observe(overdue, await self._plant.read_caps(overdue), now)
        look = await self._plant.look()
        # What is booked first is kept first: an older ledger never replaces a newer one.
        async with self._booking:
            believed = self._see(ledger, look.use, now)
            actions = step(self.policy, now, self._view(ledger, look._replace(use=believed), now))
            self._queue = actions.queue
            commands = ledger.propose(now, actions.caps, self.limits, groups=look.job, rank=actions.rank)
            ledger.send(commands, now, now + SETTLE)
            on = ledger.boot(actions.on, self.limits, now)
            self._held[on] = now + HOLD
            await self._shelf.save(ledger.snapshot())
        for rows, which in ((on, True), (actions.off, False)):
            if len(rows):
                await self._plant.switch(rows, which)
        await self._hand_over(ledger, commands)

    async def admit(self, rows: Rows, watts: float) -> bool:
        """Whether a job may start on idle ``rows`` under a cap of ``watts``; if so it has its power, and its caps."""
        async with self._booking:
            ledger, now = self._ledger, self._clock()
            if ledger is None:
                return False
            commands = ledger.launch(rows, np.full(len(rows), watts), self.limits, now, now + SETTLE)
            if commands is None:
                return False
            self._held[rows] = now + HOLD
            await self._shelf.save(ledger.snapshot())
        await self._hand_over(ledger, commands)
        return True

    async def _go_on(self) -> None:
        while True:
            try:
                await self.round()
                self._error = ""
            except StrataError as error:
                self._error = str(error)
                log.warning("power policy %s: %s; caps stay as they are", self.policy.name, error)
            await asyncio.sleep(self.policy.every)

    async def _take_over(self, now: float) -> Ledger | None:
        """The predecessor's ledger. Without one: what nodes say once nothing can be under way any more."""
        kept = await self._shelf.load()
        if kept is not None:
            try:
                found = Ledger.restore(self._ratings, kept)
            except Corrupt as error:
                log.warning("power policy %s: %s", self.policy.name, error)
            else:
                self._held[:] = now + HOLD
                return found
        self._begun = self._begun or now
        if kept is not None and now < self._begun + SETTLE:
            return None
        return Ledger(self._ratings, caps=await self._plant.read_caps(np.arange(len(self._ratings.high))))

    def _see(self, ledger: Ledger, looked: NDArray[np.int8], now: float) -> NDArray[np.int8]:
        """Note what nodes are used for, as far as it is believed; what is."""
        seen = looked if self._asks else np.where(looked == Use.IDLE, Use.BUSY, looked).astype(np.int8)
        self._held[seen == ledger.use] = -np.inf
        up = (ledger.use == Use.BOOTING) & (seen == Use.IDLE)
        doubted = (seen < ledger.use) & ~up & (now < self._held)
        changed = (seen != ledger.use) & ~doubted
        for use in np.unique(seen[changed]):
            ledger.occupy(np.flatnonzero(changed & (seen == use)), Use(int(use)), now)
        return np.where(doubted, ledger.use, looked)

    def _view(self, ledger: Ledger, look: Look, now: float) -> View:
        return View(
            use=look.use,
            job=look.job,
            idle_since=look.idle_since,
            queue=self._queue,
            cabinet=look.cabinet,
            pdu=look.pdu,
            jobs=look.jobs,
            waiting=look.waiting,
            room=ledger.room(now, self.limits),
        )

    async def _hand_over(self, ledger: Ledger, commands: Commands) -> None:
        rows, watts = commands
        if not len(rows):
            return
        try:
            async with asyncio.timeout(SETTLE):
                answers = await self._plant.set_caps(commands)
        except TimeoutError:
            return
        now = self._clock()
        ledger.confirm(rows[answers.done], watts[answers.done], now)
        ledger.refuse(rows[answers.refused], now)
