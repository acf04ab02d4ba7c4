"""Caps that never add up to more than the site may draw, whatever has become of the commands under way.

A ``Ledger`` holds, per node, the cap as last confirmed, the cap that was asked for and may or may not be in force, and
what the node is used for. A node counts with the most that it may draw given all of that. Lowering frees power only
when it is confirmed; raising takes power before it is sent. A command whose outcome is not known counts as the higher
of both until somebody has looked, after the last moment at which it could still have taken effect.

Whoever sends commands keeps the ledger (``snapshot``) first, so that a successor knows all that may be under way. Pure:
no clock, no I/O. A node is a row; a step over 100,000 of them is a few array operations.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.errors import Corrupt

Rows = NDArray[np.int64]
Column = NDArray[np.float64]
Mask = NDArray[np.bool_]

MINUTE = 60.0
SETTLE = 60.0
"""Seconds that whoever sends a command gives it. After that it is given up, and cannot take effect any more."""
_SKIPS = 32
"""How many raises that do not fit are passed over for smaller ones behind them."""


class Use(IntEnum):
    """What a node is doing, as far as power goes."""

    OFF = 0
    STOPPING = 1
    IDLE = 2
    BOOTING = 3
    BUSY = 4
    """Runs a job, or may at any moment: draws up to its cap."""


class Ratings(NamedTuple):
    """Watts of each node, a column each."""

    idle: Column
    boot: Column
    """The most while it starts."""
    low: Column
    """The lowest cap that it takes."""
    high: Column
    """The most that it draws without a cap."""

    @classmethod
    def alike(cls, count: int, *, idle: float, boot: float, low: float, high: float) -> Ratings:
        """``count`` nodes with the same figures."""
        return cls(*(np.full(count, value, np.float64) for value in (idle, boot, low, high)))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the site allows, in watts."""

    site: float
    """Never more than this, at any instant."""
    floor: float = 0.0
    """The lower edge of the power band: caps are not lowered so far that the machine could not draw this."""
    ramp_up: float = np.inf
    """The most by which what may be drawn rises within any minute."""
    ramp_down: float = np.inf
    """The same for lowering caps; not heeded while more may be drawn than ``site`` allows."""


class Commands(NamedTuple):
    """Caps to set: one value for each row."""

    rows: Rows
    watts: Column


ALL = slice(None)
NOTHING = Commands(np.empty(0, np.int64), np.empty(0, np.float64))


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
        self._risen = _Moves(count)
        self._fallen = _Moves(count)

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
        return self._draw(self.ceiling(rows), rows)

    def drawn(self, caps: Column) -> Column:
        """The most that each node would draw, used as it is, with one cap for each."""
        return self._draw(caps)

    def room(self, now: float, limits: Limits) -> float:
        """Watts that may be given out now. Below zero: so much has to be taken back."""
        room = limits.site - float(self.worst().sum())
        return min(room, limits.ramp_up - self._risen.within(now)) if room > 0 else room

    def propose(
        self, now: float, targets: Column, limits: Limits, *, groups: Rows | None = None, rank: Column | None = None
    ) -> Commands:
        """The commands that may be sent now on the way to ``targets`` (NaN: leave it as it is).

        Rows with the same number in ``groups`` (0 and up; below: by itself) are raised all together or not at all, in
        the order of their ``rank``, lowest first. While more may be drawn than is allowed, nodes are lowered even
        where nobody asked for it, and nothing is raised. Nodes with a command under way are left alone.
        """
        worst = self.worst()
        over = float(worst.sum()) > limits.site
        wanted = np.clip(targets, self.ratings.low, self.ratings.high)
        if over:
            wanted = np.fmin(wanted, self._shed(now, limits.site))
        free = ~self.in_flight
        down = free & (wanted < self.cap)
        if not over:
            freed = np.where(down, worst - self._draw(wanted), 0.0)
            spare = min(float(worst.sum()) - limits.floor, limits.ramp_down - self._fallen.within(now))
            down &= _fitting(down, freed, spare, groups, rank)
        up = np.zeros(len(self), np.bool_)
        if not over:
            up = free & (wanted > self.cap)
            taken = np.where(up, self._draw(wanted) - worst, 0.0)
            up &= _fitting(up, taken, self.room(now, limits), groups, rank)
        rows = np.flatnonzero(down | up)
        return Commands(rows, wanted[rows]) if len(rows) else NOTHING

    def send(self, commands: Commands, now: float, until: float) -> None:
        """Note that ``commands`` are about to be sent; after ``until`` none of them can take effect any more.

        Call this, keep the ``snapshot``, and only then send.
        """
        rows, watts = commands
        before = self.worst(rows)
        fallen = before - self._draw(watts, rows)
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
        boot = self.ratings.boot[rows]
        return boot if self.asks else np.fmax(boot, self.ceiling(rows))

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
        """All of it, for a successor."""
        columns = [self.cap, self.asked, self.until, self.since]
        columns += [self._risen.watts, self._risen.ended, self._fallen.watts, self._fallen.ended]
        return msgspec.msgpack.encode(_Kept(self.use.tobytes(), [column.tobytes() for column in columns]))

    @classmethod
    def restore(cls, ratings: Ratings, snapshot: bytes, *, asks: bool = True) -> Ledger:
        """What a predecessor kept. All that it had under way is still under way."""
        found = cls(ratings, asks=asks)
        try:
            kept = msgspec.msgpack.decode(snapshot, type=_Kept)
            columns = [np.frombuffer(column, np.float64).copy() for column in kept.columns]
            found.use = np.frombuffer(kept.use, np.int8).copy()
            found.cap, found.asked, found.until, found.since = columns[:4]
            found._risen.watts, found._risen.ended, found._fallen.watts, found._fallen.ended = columns[4:]
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt(f"the ledger of caps cannot be read: {error}", hint="read the caps from the nodes") from None
        if {len(found.use), *map(len, columns)} != {len(ratings.high)}:
            raise Corrupt("the ledger of caps is of another set of nodes", hint="read the caps from the nodes")
        found.cap = np.where(np.isnan(found.cap), ratings.high, found.cap)
        return found

    def _settle(self, rows: Rows, watts: Column, now: Column | float) -> None:
        self.cap[rows] = watts
        self.asked[rows] = np.nan
        self.since[rows] = now
        self._risen.end(rows, now)
        self._fallen.end(rows, now)

    def _draw(self, caps: Column, rows: Rows | slice = ALL) -> Column:
        """What nodes would draw at most, used as they are, under ``caps``."""
        use, ratings = self.use[rows], self.ratings
        found: Column = np.where(self._by_cap(use), caps, ratings.idle[rows])
        booting = use == Use.BOOTING
        if booting.any():
            found = np.where(booting, ratings.boot[rows] if self.asks else np.fmax(ratings.boot[rows], caps), found)
        found[use == Use.OFF] = 0.0
        return found

    def _by_cap(self, use: NDArray[np.int8]) -> Mask:
        """Who may draw as much as its cap allows."""
        found: Mask = use == Use.BUSY if self.asks else use != Use.OFF
        return found

    def _shed(self, now: float, site: float) -> Column:
        """The caps, level over all busy nodes as far as their lowest allows, that bring the machine under ``site``.

        Commands under way are taken to arrive, until their time is over.
        """
        ceiling = self.ceiling()
        lowest = np.where(self.in_flight & (self.until <= now), ceiling, np.minimum(ceiling, self.ratings.low))
        bottom, top = 0.0, float(ceiling.max(initial=0.0))
        for _ in range(40):
            level = (bottom + top) / 2
            if float(self._draw(np.clip(ceiling, lowest, np.maximum(level, lowest))).sum()) > site:
                top = level
            else:
                bottom = level
        level = float(np.floor(bottom))
        lowered = np.clip(ceiling, lowest, np.maximum(level, lowest))
        found: Column = np.where(self._by_cap(self.use), lowered, ceiling)
        return found


class _Kept(msgspec.Struct):
    use: bytes
    columns: list[bytes]


_FRESH = (np.nan, np.nan, -np.inf, -np.inf, 0.0, -np.inf, 0.0, -np.inf)
"""What a snapshot says, column by column, of a node that nobody has heard of."""


def moved(snapshot: bytes, places: Rows) -> bytes:
    """A snapshot for other nodes: row by row the place in the old one; -1: it is new, and counts as not capped."""
    try:
        kept = msgspec.msgpack.decode(snapshot, type=_Kept)
        old = [np.frombuffer(column, np.float64) for column in kept.columns]
        use = np.frombuffer(kept.use, np.int8)
        # The last place is that of everybody who is new.
        columns = [np.append(column, fresh)[places] for fresh, column in zip(_FRESH, old, strict=True)]
        used = np.append(use, np.int8(Use.BUSY))[places].astype(np.int8)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise Corrupt(f"the ledger of caps cannot be read: {error}", hint="read the caps from the nodes") from None
    return msgspec.msgpack.encode(_Kept(used.tobytes(), [column.tobytes() for column in columns]))


class _Moves:
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
        """Moves of nodes are over."""
        self.ended[rows] = np.minimum(self.ended[rows], now)

    def within(self, now: float) -> float:
        """Watts that count now."""
        gone = self.ended <= now - MINUTE
        self.watts[gone] = 0.0
        return float(self.watts.sum())


def _fitting(chosen: Mask, watts: Column, room: float, groups: Rows | None, rank: Column | None) -> Mask:
    """Which of the ``chosen`` rows fit into ``room`` watts, whole groups at a time, lowest rank first."""
    fits = np.zeros(len(chosen), np.bool_)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return fits
    if float(watts[rows].sum()) <= room:
        fits[rows] = True
        return fits
    own = -1 - rows
    keys = own if groups is None else np.where(groups[rows] < 0, own, groups[rows])
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    need = np.bincount(member, watts[rows])
    order = np.argsort(rank[rows][first], kind="stable") if rank is not None else np.argsort(first)
    granted = np.zeros(len(need), np.bool_)
    for _ in range(_SKIPS):
        fitting = np.cumsum(need[order]) <= room
        count = len(order) if fitting.all() else int(np.argmin(fitting))
        granted[order[:count]] = True
        room -= float(need[order[:count]].sum())
        order = order[count + 1 :]
        if not len(order):
            break
    fits[rows[granted[member]]] = True
    return fits
