"""The ledger of caps: what each node may draw at most, how what the site allows is split into caps (``propose``,
``level``), and which commands may be sent now.

It holds, per node, the cap as last confirmed, the cap that was asked for and may or may not be in force, and what the
node is used for. A node counts with the most that it may draw given all of that. Lowering frees power only when it is
confirmed; raising takes power before it is sent. A command whose outcome is not known counts as the higher of both
until somebody has looked, after the last moment at which it could still have taken effect.

Whoever sends commands keeps the ledger (``snapshot``) first, so that a successor knows all that may be under way. Pure:
no clock, no I/O. A node is a row; a step over 100,000 of them is a few array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.errors import Corrupt
from strata.power.capping.fitting import Bounds, fitting, stepped
from strata.power.capping.terms import NOTHING, Column, Commands, Limits, Mask, Ratings, Rows, Use

ALL = slice(None)


class Ledger:
    """What each node may draw at most. Times are Unix seconds."""

    def __init__(self, ratings: Ratings, *, caps: Column | None = None, use: Use = Use.BUSY, asks: bool = True) -> None:
        """``caps``: as read from the nodes just now. Without them every node counts as not capped. ``asks``: no job
        begins on an idle node before there is room for it; otherwise one may at any moment, and every node that is not
        off counts with its cap."""
        count = len(ratings.high)
        self.ratings = ratings
        self.asks = asks
        self.cap: Column = ratings.high.copy() if caps is None else np.where(np.isnan(caps), ratings.high, caps)
        self.asked: Column = np.full(count, np.nan)
        self.until: Column = np.full(count, -np.inf)
        self.since: Column = np.full(count, -np.inf)
        self.use = np.full(count, use, np.int8)
        self._risen = Moves(count)
        self._fallen = Moves(count)

    def __len__(self) -> int:
        return len(self.cap)

    @property
    def in_flight(self) -> Mask:
        """Nodes with a command of which the outcome is not known yet."""
        return ~np.isnan(self.asked)

    def ceiling(self, rows: Rows | slice = ALL) -> Column:
        """The highest cap that may be in force."""
        found: Column = np.fmax(self.cap[rows], self.asked[rows])
        return found

    def worst(self, rows: Rows | slice = ALL) -> Column:
        """The most that each node may draw now."""
        return self.drawn(self.ceiling(rows), rows)

    def drawn(self, caps: Column, rows: Rows | slice = ALL) -> Column:
        """The most that nodes would draw, used as they are, under ``caps``."""
        use = self.use[rows]
        found: Column = np.where(self._by_cap(use), caps, self.ratings.idle[rows])
        booting = use == Use.BOOTING
        if booting.any():
            found = np.where(booting, self._starting(caps, rows), found)
        found[use == Use.OFF] = 0.0
        return found

    def room(self, now: float, limits: Limits) -> float:
        """Watts that may be given out now. Below zero: so much has to be taken back."""
        return self._up_to(now, limits).now

    def level(self, now: float, caps: Column, limits: Limits) -> Column:
        """``caps``, or where they do not all fit, one level for everybody, as far as their lowest allows. Where jobs do
        not ask, nodes that are off are left enough to start with their lowest: nobody else would make room for them."""
        low, high = self.ratings.low, self.ratings.high
        kept = 0.0 if self.asks else float(self._starting(low, ALL)[self.use == Use.OFF].sum())
        return self._lowered(now, np.clip(caps, low, high), low, limits.site - kept)

    def propose(
        self, now: float, targets: Column, limits: Limits, *, groups: Rows | None = None, rank: Column | None = None
    ) -> Commands:
        """The commands that may be sent now on the way to ``targets`` (NaN: leave it as it is).

        Rows with the same number in ``groups`` (0 and up; below: by itself) are raised all together or not at all, in
        the order of their ``rank``, lowest first. What is more than a ramp allows in a minute goes in steps. While more
        may be drawn than is allowed, nodes are lowered even where nobody asked for it, and nothing is raised. Nodes
        with a command under way are left alone.
        """
        worst = self.worst()
        over = float(worst.sum()) > limits.site
        wanted = np.clip(targets, self.ratings.low, self.ratings.high)
        if over:
            wanted = np.fmin(wanted, self._shed(now, limits.site))
        free = ~self.in_flight
        down = free & (wanted < self.cap)
        if not over:
            down_to = Bounds(float(worst.sum()) - limits.floor, limits.ramp_down, self._fallen.within(now))
            wanted = stepped(down, self.cap, wanted, worst - self.drawn(wanted), down_to, groups, rank)
            freed = np.where(down, worst - self.drawn(wanted), 0.0)
            down &= fitting(down, freed, down_to.now, groups, rank) | (freed == 0)
        up = np.zeros(len(self), np.bool_)
        if not over:
            up = free & (wanted > self.cap)
            up_to = self._up_to(now, limits)
            wanted = stepped(up, self.cap, wanted, self.drawn(wanted) - worst, up_to, groups, rank)
            up &= fitting(up, np.where(up, self.drawn(wanted) - worst, 0.0), up_to.now, groups, rank)
        rows = np.flatnonzero(down | up)
        return Commands(rows, wanted[rows]) if len(rows) else NOTHING

    def send(self, commands: Commands, now: float, until: float) -> None:
        """Note that ``commands`` are about to be sent; after ``until`` none of them can take effect any more.

        Call this, keep the ``snapshot``, and only then send.
        """
        rows, watts = commands
        before = self.worst(rows)
        fallen = before - self.drawn(watts, rows)
        self.asked[rows] = watts
        self.until[rows] = until
        self.since[rows] = now
        self._risen.begin(rows, self.worst(rows) - before, now)
        self._fallen.begin(rows, np.maximum(fallen, 0.0), now)

    def confirm(self, rows: Rows, watts: Column, now: float) -> None:
        """Nodes said that their cap is set. Hand over no answer that came after the command's ``until``."""
        asked = self.asked[rows] == watts
        self._settle(rows[asked], watts[asked], now)

    def refuse(self, rows: Rows, now: float) -> None:
        """Nodes said that they did not set the cap."""
        rows = rows[self.in_flight[rows]]
        self._settle(rows, self.cap[rows], now)

    def observe(self, rows: Rows, watts: Column, asked_at: Column | float) -> None:
        """What nodes say their cap is (NaN: they do not say), asked at ``asked_at``.

        An answer to a question from before the last command, or its end, says nothing.
        """
        when = np.broadcast_to(np.asarray(asked_at, np.float64), rows.shape)
        decided = ~self.in_flight[rows] | (when >= self.until[rows]) | (watts == self.asked[rows])
        decided &= ~np.isnan(watts) & (when >= self.since[rows])
        self._settle(rows[decided], watts[decided], when[decided])

    def rate(self, ratings: Ratings) -> None:
        """More is known of what nodes draw. One that had no cap, or is about to have none, counts with the most."""
        for column in (self.cap, self.asked):
            free = column >= self.ratings.high
            column[free] = np.maximum(column, ratings.high)[free]
        self.ratings = ratings

    def overdue(self, now: float) -> Rows:
        """Nodes to look at: their command can no longer take effect, and whether it did is not known."""
        return np.flatnonzero(self.in_flight & (self.until <= now))

    def occupy(self, rows: Rows, use: Use, now: float) -> None:
        """Note what nodes are about to be used for. Ask for ``room`` first; keep the ``snapshot`` before it happens.

        A use that draws less is noted only once it has been seen.
        """
        before = self.worst(rows)
        self.use[rows] = use
        self._risen.begin(rows, np.maximum(self.worst(rows) - before, 0.0), now)
        self._risen.end(rows[~self.in_flight[rows]], now)

    def start(self, rows: Rows) -> Column:
        """Watts that nodes count with while they start."""
        return self._starting(self.ceiling(rows), rows)

    def boot(self, rows: Rows, limits: Limits, now: float) -> Rows:
        """Those of the first ``rows``, which are off, for which there is room to start, noted as starting."""
        need = np.cumsum(self.start(rows) - self.worst(rows))
        granted = rows[need <= self.room(now, limits)]
        self.occupy(granted, Use.BOOTING, now)
        return granted

    def launch(self, rows: Rows, caps: Column, limits: Limits, now: float, until: float) -> Commands | None:
        """Put nodes to work under ``caps``: the commands that it takes, noted as sent. None: there is no room."""
        need = float((np.fmax(self.ceiling(rows), caps) - self.worst(rows)).sum())
        if need > self.room(now, limits):
            return None
        self.occupy(rows, Use.BUSY, now)
        change = ~self.in_flight[rows] & (self.cap[rows] != caps)
        commands = Commands(rows[change], caps[change])
        self.send(commands, now, until)
        return commands

    def snapshot(self) -> bytes:
        risen, fallen = self._risen, self._fallen
        columns = (self.cap, self.asked, self.until, self.since)
        return pack(self.use, (*columns, risen.watts, risen.ended, fallen.watts, fallen.ended))

    @classmethod
    def restore(cls, ratings: Ratings, snapshot: bytes, *, asks: bool = True) -> Ledger:
        """What a predecessor kept. All that it had under way is still under way."""
        use, columns = unpack(snapshot)
        if {len(use), *map(len, columns)} != {len(ratings.high)}:
            raise Corrupt("the ledger of caps is of another set of nodes", hint="read the caps from the nodes")
        found = cls(ratings, asks=asks)
        risen, fallen = found._risen, found._fallen
        found.use = use.copy()
        found.cap, found.asked, found.until, found.since, *moves = (column.copy() for column in columns)
        risen.watts, risen.ended, fallen.watts, fallen.ended = moves
        found.cap = np.where(np.isnan(found.cap), ratings.high, found.cap)
        return found

    def _settle(self, rows: Rows, watts: Column, now: Column | float) -> None:
        self.cap[rows] = watts
        self.asked[rows] = np.nan
        self.since[rows] = now
        self._risen.end(rows, now)
        self._fallen.end(rows, now)

    def _up_to(self, now: float, limits: Limits) -> Bounds:
        return Bounds(limits.site - float(self.worst().sum()), limits.ramp_up, self._risen.within(now))

    def _starting(self, caps: Column, rows: Rows | slice) -> Column:
        boot = self.ratings.boot[rows]
        return boot if self.asks else np.fmax(boot, caps)

    def _by_cap(self, use: NDArray[np.int8]) -> Mask:
        """Who may draw as much as its cap allows."""
        found: Mask = use == Use.BUSY if self.asks else use != Use.OFF
        return found

    def _shed(self, now: float, site: float) -> Column:
        """The caps, level over all busy nodes as far as their lowest allows, that bring the machine under ``site``.

        Commands under way are taken to arrive, until their time is over.
        """
        ceiling = self.ceiling()
        lowered = self._lowered(now, ceiling, np.minimum(ceiling, self.ratings.low), site)
        found: Column = np.where(self._by_cap(self.use), lowered, ceiling)
        return found

    def _lowered(self, now: float, caps: Column, lowest: Column, site: float) -> Column:
        """``caps``, lowered to the highest level in whole watts that keeps the machine under ``site``."""
        lowest = np.where(self.in_flight & (self.until <= now), self.ceiling(), lowest)
        caps = np.maximum(caps, lowest)
        if float(self.drawn(caps).sum()) <= site:
            return caps
        bottom, top = 0, int(np.ceil(caps.max(initial=0.0)))
        while top - bottom > 1:
            level = (bottom + top) // 2
            if float(self.drawn(np.clip(caps, lowest, np.maximum(level, lowest))).sum()) > site:
                top = level
            else:
                bottom = level
        found: Column = np.clip(caps, lowest, np.maximum(bottom, lowest))
        return found


MINUTE = 60.0


class Moves:
    """Watts by which nodes rose (or fell) lately. A move counts from its command until a minute after its end.

    So whatever moment between the two it took effect at, the moves of any one minute were counted together.
    """

    def __init__(self, count: int) -> None:
        self.watts: Column = np.zeros(count)
        self.ended: Column = np.full(count, -np.inf)

    def begin(self, rows: Rows, watts: Column, now: float) -> None:
        """Nodes may move by so much from ``now`` on."""
        self.within(now)
        moved = watts > 0
        self.watts[rows] += watts
        self.ended[rows[moved]] = np.inf

    def end(self, rows: Rows, now: Column | float) -> None:
        self.ended[rows] = np.minimum(self.ended[rows], now)

    def within(self, now: float) -> float:
        gone = self.ended <= now - MINUTE
        self.watts[gone] = 0.0
        return float(self.watts.sum())


_FRESH = (np.nan, np.nan, -np.inf, -np.inf, 0.0, -np.inf, 0.0, -np.inf)
"""What is kept, column by column, of a node that nobody has heard of."""


class _Kept(msgspec.Struct):
    use: bytes
    columns: list[bytes]


def pack(use: NDArray[np.int8], columns: Sequence[Column]) -> bytes:
    return msgspec.msgpack.encode(_Kept(use.tobytes(), [column.tobytes() for column in columns]))


def unpack(snapshot: bytes) -> tuple[NDArray[np.int8], list[Column]]:
    """What ``pack`` was given; to be read only. Raises ``Corrupt``."""
    try:
        kept = msgspec.msgpack.decode(snapshot, type=_Kept)
        columns = [np.frombuffer(column, np.float64) for _, column in zip(_FRESH, kept.columns, strict=True)]
        return np.frombuffer(kept.use, np.int8), columns
    except (msgspec.MsgspecError, ValueError) as error:
        raise _unreadable(error) from None


def moved(snapshot: bytes, places: Rows) -> bytes:
    """A snapshot for other nodes: row by row the place in the old one; -1: it is new, and counts as not capped."""
    use, columns = unpack(snapshot)
    try:
        # The last place is that of everybody who is new.
        found = [np.append(column, fresh)[places] for fresh, column in zip(_FRESH, columns, strict=True)]
        return pack(np.append(use, np.int8(Use.BUSY))[places].astype(np.int8), found)
    except IndexError as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> Corrupt:
    return Corrupt(f"the ledger of caps cannot be read: {error}", hint="read the caps from the nodes")


class Need(NamedTuple):
    """Watts for nodes that are off to start."""

    as_is: Column
    """With the caps that they have."""
    least: Column
    """With their lowest."""
    free: float
    """What the site's limit leaves for all of them."""
    ramp: float
    """The most that may be had within a minute."""


def need(ledger: Ledger, rows: Rows, limits: Limits) -> Need:
    lowest = np.fmax(ledger.ratings.boot[rows], np.minimum(ledger.ratings.low[rows], ledger.ceiling(rows)))
    return Need(ledger.start(rows), lowest, limits.site - float(ledger.worst().sum()), limits.ramp_up)


def start_caps(ledger: Ledger, rows: Rows, limits: Limits) -> Column:
    """The caps with which as many of ``rows`` as can be, the first of them, could start: what is free is shared out
    evenly. NaN: not even with its lowest, or it needs no lower one."""
    caps = np.full(len(rows), np.nan)
    _, least, free, ramp = need(ledger, rows, limits)
    count = int(np.searchsorted(np.cumsum(least), free, side="right"))
    now, least = ledger.ceiling(rows[:count]), least[:count]
    # What a node draws while it starts, it has anyway.
    shared = np.fmax(min(_level(now, least, free), ramp), least)
    caps[:count] = np.where(shared < now, shared, np.nan)
    return caps


def _level(now: Column, least: Column, free: float) -> float:
    """The highest cap for everybody with which they need no more than is ``free``; in whole watts."""
    if float(np.fmax(now, least).sum()) <= free:
        return np.inf
    low, high = 0.0, float(now.max(initial=0.0))
    for _ in range(40):
        level = (low + high) / 2
        if float(np.fmax(np.minimum(now, level), least).sum()) > free:
            high = level
        else:
            low = level
    return float(np.floor(low))
