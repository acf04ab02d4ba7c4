"""Runs a policy on the machine: looks, asks the policy, and sends what the ledger of caps allows.

It keeps its ledger in the store before anything is sent. There must be one governor for a machine at a time. When it
ends or dies, every node keeps the cap that it has.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.distinct import distinct
from strata.core.errors import Corrupt
from strata.fleet.recurring import Recurring
from strata.power.capping.ledger import Ledger
from strata.power.capping.ledger_store import LedgerStore
from strata.power.capping.split import Need, need, propose, start_caps
from strata.power.capping.terms import GRACE, SETTLE, Column, Commands, Limits, Mask, Ratings, Rows, Use
from strata.power.policies.capped_queues import first_shares
from strata.power.policies.decide import decide
from strata.power.policies.policy import Policy
from strata.power.policies.view import Jobs, View
from strata.power.site.governed_fleet import UNSEEN, GovernedFleet, Look

log = logging.getLogger(__name__)

WANTED = 60.0
"""Seconds for which a node that was not let start is believed to be wanted: who wants it asks again."""
URGENT = 10.0
"""Seconds to the next round while something is to be lowered or its outcome is not known."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a governor stands."""

    allowed_w: float
    """The most that may be drawn now, given all that is not known."""
    in_flight: int
    over_w: float
    """By how much ``allowed_w`` is above the limit; it is being lowered."""
    error: str
    """Why the last round was not finished; empty: it was."""


class Governor:
    """One policy, one machine. A job may begin on an idle node at any moment: such a node counts with its cap."""

    def __init__(
        self,
        policy: Policy,
        ratings: Ratings,
        machine: GovernedFleet,
        store: LedgerStore,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = policy
        self.limits: Limits = policy.limits()
        self._ratings, self._machine, self._store, self._clock = ratings, machine, store, clock
        count = len(ratings.high)
        self._queue = first_shares(policy.queues, count)
        self._ledger: Ledger | None = None
        self._uses = SeenUses(count)
        self._changed = np.full(count, -np.inf)
        self._wants_on = np.full(count, -np.inf)
        """When each node was last not let start."""
        self._booking = asyncio.Lock()
        self._begun = 0.0
        trouble = f"power policy {policy.name}: caps stay as they are"
        self._rounds = Recurring("power governor", self.round, self._pause, trouble=trouble)
        self.start = self._rounds.start
        self.stop = self._rounds.stop
        """Caps stay as they are."""

    def status(self) -> Status:
        allowed = float(self._ledger.worst().sum()) if self._ledger else float(self._ratings.high.sum())
        return Status(
            allowed_w=allowed,
            in_flight=int(self._ledger.in_flight.sum()) if self._ledger else 0,
            over_w=max(allowed - self.limits.site, 0.0),
            error=self._rounds.error,
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
            ledger.observe(overdue, await self._machine.read_caps(overdue), now)
        look = await self._machine.look()
        # What is booked first is kept first: an older ledger never replaces a newer one.
        async with self._booking:
            self._note(ledger, look)
            look = look._replace(use=self._uses.see(ledger, look.use, now))
            view = self._view(ledger, look, now)
            decided = decide(self.policy, now, view, ledger, self.limits, now, at_most=self._starters(ledger, now))
            self._queue = decided.queue
            self._changed[decided.commands.rows] = now
            self._uses.hold(decided.on, now)
            await self._store.save(ledger.snapshot())
        for rows, which in ((decided.on, True), (decided.off, False)):
            if len(rows):
                await self._machine.switch(rows, which)
        await self._hand_over(decided.commands, now)

    async def power_on(self, rows: Rows) -> Mask:
        """For which of ``rows`` there is power to start, in this order; they have it then. Those that are not off have
        theirs. Others are capped lower, where they could start so: ask for them again."""
        async with self._booking:
            ledger, now = self._ledger, self._clock()
            if ledger is None:
                return np.zeros(len(rows), np.bool_)
            off = ledger.use[rows] == Use.OFF
            granted = ledger.boot(rows[off], self.limits, now)
            if len(granted):
                self._uses.hold(granted, now)
                await self._store.save(ledger.snapshot())
            found: Mask = ~off | np.isin(rows, granted)
            self._wants_on[rows[~found]] = now
            if np.isfinite(start_caps(ledger, rows[~found], self.limits)).any():
                self._rounds.soon()
            return found

    def needs(self, rows: Rows) -> Need | None:
        """What it takes to start nodes that are off; None: nobody knows before the first round."""
        return None if self._ledger is None else need(self._ledger, rows, self.limits)

    @property
    def knows(self) -> bool:
        """Whether it has a ledger already."""
        return self._ledger is not None

    def booting(self) -> Rows:
        """Nodes that are starting, or were let start."""
        return np.empty(0, np.int64) if self._ledger is None else np.flatnonzero(self._ledger.use == Use.BOOTING)

    # -- caps that somebody else asks for

    def short(self, rows: Rows, watts: Column) -> float:
        """Watts by which the site would be over its limit with these caps, once all of them are in force. Infinite:
        nobody knows before the first round."""
        ledger = self._ledger
        if ledger is None:
            return float(np.inf)
        ceiling = ledger.ceiling()
        rising = watts > ceiling[rows]
        if not rising.any():
            return 0.0
        after = ceiling.copy()
        after[rows] = watts
        return float(ledger.drawn(after).sum()) - self.limits.site

    def highest(self, rows: Rows) -> Column:
        """What nodes draw without a cap."""
        return self._ratings.high[rows]

    async def book(self, rows: Rows, watts: Column) -> Column:
        """The caps that may be set now on the way to these (NaN: none yet): they are booked, and whoever asked sets
        them and calls ``settle``, within ``SETTLE``. The others, and the rest of a step, may be asked for again."""
        async with self._booking:
            found: Column = np.full(len(rows), np.nan)
            ledger, now = self._ledger, self._clock()
            if ledger is None:
                return found
            targets = np.full(len(ledger), np.nan)
            targets[rows] = watts
            proposed = propose(ledger, now, targets, self.limits)
            # Where the site is over its limit others are lowered too, and these further; that is the next round's.
            over = float(ledger.worst().sum()) > self.limits.site
            asked = np.isin(proposed.rows, rows) & ((proposed.watts == targets[proposed.rows]) | (not over))
            commands = Commands(proposed.rows[asked], proposed.watts[asked])
            same = ~ledger.in_flight[rows] & (ledger.cap[rows] == watts)
            found[same] = watts[same]
            if len(commands.rows):
                ledger.send(commands, now, now + SETTLE)
                self._changed[commands.rows] = now
                await self._store.save(ledger.snapshot())
                granted = np.full(len(ledger), np.nan)
                granted[commands.rows] = commands.watts
                found = np.where(same, found, granted[rows])
            return found

    def settle(self, rows: Rows, watts: Column, done: Mask, refused: Mask) -> None:
        """What became of what was booked. Neither done nor refused: it is not known."""
        if self._ledger is not None:
            now = self._clock()
            self._ledger.confirm(rows[done], watts[done], now)
            self._ledger.refuse(rows[refused], now)

    # -- the parts of a round

    def _pause(self) -> float:
        """What is under way, or still to be lowered, is not left for long."""
        urgent = self._ledger is not None and (self.status().over_w > 0 or bool(self._ledger.in_flight.any()))
        return min(self.policy.every, URGENT) if urgent else self.policy.every

    async def _take_over(self, now: float) -> Ledger | None:
        """The predecessor's ledger. Without one: what nodes say once nothing can be under way any more."""
        kept = await self._store.load()
        if kept is not None:
            try:
                found = Ledger.restore(self._ratings, kept, asks=False)
            except Corrupt as error:
                log.warning("power policy %s: %s", self.policy.name, error)
            else:
                self._uses.hold(slice(None), now)
                return found
        self._begun = self._begun or now
        if kept is not None and now < self._begun + SETTLE:
            return None
        caps = await self._machine.read_caps(np.arange(len(self._ratings.high)))
        return Ledger(self._ratings, caps=caps, asks=False)

    def _note(self, ledger: Ledger, look: Look) -> None:
        """What has become known of nodes and their caps, whoever changed them."""
        if look.ratings is not None:
            ledger.rate(look.ratings)
            self._ratings = look.ratings
        if look.caps is not None and look.caps_at is not None:
            everybody = np.arange(len(ledger))
            ledger.observe(everybody, look.caps, np.nan_to_num(look.caps_at, nan=-np.inf))

    def _starters(self, ledger: Ledger, now: float) -> Column:
        """Caps for nodes that are to start and may not, as they are."""
        rows = np.flatnonzero((self._wants_on > now - WANTED) & (ledger.use == Use.OFF))
        found: Column = np.full(len(ledger), np.nan)
        found[rows] = start_caps(ledger, rows, self.limits)
        return found

    def _view(self, ledger: Ledger, look: Look, now: float) -> View:
        use, starting = look.use, look.use == Use.BOOTING
        if look.starting is not None:
            # What was let start a moment ago is not seen to yet.
            starting = look.starting | (starting & self._uses.held)
        if look.apart is not None:
            # Neither off nor idle as far as a policy goes: nobody to start or to stop.
            use = np.where(look.apart & (use == Use.OFF), Use.STOPPING, use)
            use = np.where(look.apart & (use == Use.IDLE), Use.BUSY, use)
        return View(
            use=use,
            job=look.job,
            idle_since=look.idle_since,
            queue=self._queue,
            cabinet=look.cabinet,
            pdu=look.pdu,
            jobs=self._capped(ledger, look),
            waiting=look.waiting,
            room=ledger.room(now, self.limits),
            start=float(ledger.start(np.flatnonzero(use == Use.OFF)).max(initial=0.0)),
            launch=0.0,
            starting=starting,
        )

    def _capped(self, ledger: Ledger, look: Look) -> Jobs:
        """The jobs with the caps of their nodes: the highest of each."""
        count = len(look.jobs.started)
        if not count:
            return look.jobs
        rows = np.flatnonzero(look.job >= 0)
        cap, changed = np.zeros(count), np.full(count, -np.inf)
        np.maximum.at(cap, look.job[rows], ledger.ceiling(rows))
        np.maximum.at(changed, look.job[rows], self._changed[rows])
        return look.jobs._replace(cap=cap, changed=changed)

    async def _hand_over(self, commands: Commands, booked: float) -> None:
        rows, watts = commands
        if not len(rows):
            return
        try:
            # A request that was given up may still be on its way for a moment.
            async with asyncio.timeout(max(0.0, booked + SETTLE - GRACE - self._clock())):
                sent = await self._machine.set_caps(commands)
        except TimeoutError:
            return
        self.settle(rows, watts, sent.done, sent.refused)


HOLD = 600.0
"""Seconds for which a node counts as starting, or as busy, before it has been seen so: what is seen may be old."""


class SeenUses:
    """What ``count`` nodes are used for. What is seen may be older than what the governor has done itself."""

    def __init__(self, count: int) -> None:
        self._until = np.full(count, -np.inf)

    def hold(self, rows: Rows | slice, now: float) -> None:
        """What the ledger says of ``rows`` is believed for a while, whatever is seen."""
        self._until[rows] = now + HOLD

    @property
    def held(self) -> Mask:
        """Nodes that have not been seen as the ledger has them since."""
        found: Mask = np.isfinite(self._until)
        return found

    def see(self, ledger: Ledger, looked: NDArray[np.int8], now: float) -> NDArray[np.int8]:
        """Note what nodes are used for, as far as it is believed; what is."""
        seen = np.where(looked == UNSEEN, ledger.use, looked)
        self._until[looked == ledger.use] = -np.inf
        up = (ledger.use == Use.BOOTING) & (seen == Use.IDLE)
        doubted = (seen < ledger.use) & ~up & (now < self._until)
        changed = (seen != ledger.use) & ~doubted
        for use in distinct(seen[changed]):
            ledger.occupy(np.flatnonzero(changed & (seen == use)), Use(int(use)), now)
        return np.where(doubted, ledger.use, seen)
