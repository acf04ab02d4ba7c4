"""In which order requests for caps are served, where several are under way.

- A node gets one command at a time.
- Of two requests for the same node the later one lasts: it goes second, or the earlier one is dropped, where that waits
  for room or would still raise what the later one lowers.
- What falls never waits for what rises. What rises waits until all that was to fall before it fell: a scheduler raises
  once it was told that others fell, or may fall yet.
- Whoever waits for room keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from strata.fleet.columns import Mask
from strata.power.telemetry.columns import Uids

Rows = npt.NDArray[np.int64]


class Turn:
    """One request: a row for each cap."""

    def __init__(self, asked: float, uids: Uids, accel: Mask, rises: Mask, overtaken: Rows) -> None:
        """``asked``: when. ``overtaken``: rows for which a later request has come already."""
        self.asked = (asked, -1)
        self.uids = uids
        self.keys = uids * 2 + accel
        self.rises = rises
        self.open: Mask = np.ones(len(uids), np.bool_)
        """Not done yet, nor given up."""
        self.overtaken: Mask = np.zeros(len(uids), np.bool_)
        self.claimed: Mask = np.zeros(len(uids), np.bool_)
        """Being done now."""
        self.stuck = False
        """It waits for room."""
        self.overtake(overtaken)

    def overtake(self, rows: Rows | Mask) -> None:
        """A later request has come for these."""
        self.overtaken[rows] = True
        self.open[rows] = False


class CapOrder:
    """One for a process."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._waited_for = False

    @contextlib.contextmanager
    def entered(self, turn: Turn) -> Iterator[Turn]:
        """Have a request among the others, until it is over."""
        turn.asked = (turn.asked[0], next(self._numbers))
        self._turns.append(turn)
        try:
            yield turn
        finally:
            self._turns.remove(turn)
            self._tell()

    def claim(self, turn: Turn, rows: Rows) -> Rows:
        """Those of ``rows`` whose time has come: nobody else touches these nodes until they are given back."""
        rows = rows[turn.open[rows]]
        free: Mask = np.ones(len(rows), np.bool_)
        rises, keys = turn.rises[rows], turn.keys[rows]
        earlier = [other for other in self._turns if other.asked < turn.asked]
        for other in self._turns:
            if other is not turn and other.claimed.any():
                free &= ~np.isin(turn.uids[rows], other.uids[other.claimed])
        for other in earlier:
            if not other.stuck:
                falls = other.open & ~other.rises
                free &= ~(rises if falls.any() else np.isin(keys, other.keys[other.open]) & rises)
                free &= ~np.isin(keys, other.keys[falls])
        for other in earlier:
            late = other.open & ~other.claimed & np.isin(other.keys, keys[free])
            other.overtake(late)
        self._waited_for |= not free.all()
        mine: Rows = rows[free]
        turn.claimed[mine] = True
        return mine

    def give_back(self, turn: Turn, rows: Rows, ended: Rows) -> None:
        """``rows`` were claimed; ``ended`` are over."""
        turn.claimed[rows] = False
        turn.open[ended] = False
        if len(ended) or self._waited_for:
            self._tell()

    async def change(self, seconds: float) -> None:
        """Wait until something has changed, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _tell(self) -> None:
        self._waited_for = False
        self._changed.set()
        self._changed = asyncio.Event()
