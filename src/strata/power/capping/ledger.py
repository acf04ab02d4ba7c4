"""The ledger of caps: what each node may draw at most. How the site's watts are split is in
``split``.

It holds, per node, the cap as last confirmed, the cap that was asked for and may or may not be in force, and what the
node is used for. A node counts with the most that it may draw given all of that. Lowering frees power only when it is
confirmed; raising takes power before it is sent. A command whose outcome is not known counts as the higher of both
until somebody has looked, after the last moment at which it could still have taken effect.

Whoever sends commands keeps the ledger (``snapshot``) first, so that a successor knows all that may be under way. Pure:
no clock, no I/O. A node is a row; a step over 100,000 of them is a few array operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from strata.core.errors import Corrupt
from strata.power.capping.terms import Bounds, Column, Commands, Limits, Mask, Ratings, Rows, Use

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
        self.risen = Moves(count)
        self.fallen = Moves(count)

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
        found: Column = np.where(self.bound_by_cap(use), caps, self.ratings.idle[rows])
        booting = use == Use.BOOTING
        if booting.any():
            found = np.where(booting, self.starting(caps, rows), found)
        found[use == Use.OFF] = 0.0
        return found

    def room(self, now: float, limits: Limits) -> float:
        """Watts that may be given out now. Below zero: so much has to be taken back."""
        return self.bounds_up(now, limits).now

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
        self.risen.begin(rows, self.worst(rows) - before, now)
        self.fallen.begin(rows, np.maximum(fallen, 0.0), now)

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
        self.risen.begin(rows, np.maximum(self.worst(rows) - before, 0.0), now)
        self.risen.end(rows[~self.in_flight[rows]], now)

    def start(self, rows: Rows) -> Column:
        """Watts that nodes count with while they start."""
        return self.starting(self.ceiling(rows), rows)

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
        risen, fallen = self.risen, self.fallen
        columns = (self.cap, self.asked, self.until, self.since)
        return pack(self.use, (*columns, risen.watts, risen.ended, fallen.watts, fallen.ended))

    @classmethod
    def restore(cls, ratings: Ratings, snapshot: bytes, *, asks: bool = True) -> Ledger:
        """What a predecessor kept. All that it had under way is still under way."""
        use, columns = unpack(snapshot)
        if {len(use), *map(len, columns)} != {len(ratings.high)}:
            raise Corrupt("the ledger of caps is of another set of nodes", hint="read the caps from the nodes")
        found = cls(ratings, asks=asks)
        risen, fallen = found.risen, found.fallen
        found.use = use.copy()
        found.cap, found.asked, found.until, found.since, *moves = (column.copy() for column in columns)
        risen.watts, risen.ended, fallen.watts, fallen.ended = moves
        found.cap = np.where(np.isnan(found.cap), ratings.high, found.cap)
        return found

    def _settle(self, rows: Rows, watts: Column, now: Column | float) -> None:
        self.cap[rows] = watts
        self.asked[rows] = np.nan
        self.since[rows] = now
        self.risen.end(rows, now)
        self.fallen.end(rows, now)

    def bounds_up(self, now: float, limits: Limits) -> Bounds:
        """By how much more may be drawn."""
        return Bounds(limits.site - float(self.worst().sum()), limits.ramp_up, self.risen.within(now))

    def starting(self, caps: Column, rows: Rows | slice = ALL) -> Column:
        """Watts that nodes would count with while they start, under ``caps``."""
        boot = self.ratings.boot[rows]
        return boot if self.asks else np.fmax(boot, caps)

    def bound_by_cap(self, use: NDArray[np.int8]) -> Mask:
        """Who may draw as much as its cap allows."""
        found: Mask = use == Use.BUSY if self.asks else use != Use.OFF
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
