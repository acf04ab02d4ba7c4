"""Turns for work that can wait: looks at BMCs' logs and sensors, consoles being opened.

There are few turns while the event loop has other things to do, and many while it has not: people and convergence come
first, and what is done when nobody wants anything costs a stated share of a core. How busy the loop is, is the
processor time that its thread has used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SHARE = 0.15
"""Of a core. While the event loop uses more than that, for whatever, turns become fewer."""
LEAST, MOST = 4.0, 500.0
"""Turns a second, however busy or idle it is."""
_FIRST = 100.0
_SAMPLE = 0.5
"""Seconds between two looks at how busy it is."""
_FASTER, _SLOWER = 2.0, 0.25
"""How much the rate changes at most by one look."""


class Background:
    """One for all such work of a process. ``used``: processor seconds of the thread that asks."""

    def __init__(
        self,
        *,
        share: float = SHARE,
        used: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = _FIRST
        """Turns a second, now."""
        self._share = share
        self._used = used
        self._clock = clock
        self._order = asyncio.Lock()
        self._next = 0.0
        self._seen: tuple[float, float] | None = None

    async def turn(self, cost: float = 1.0) -> None:
        """Wait for one's turn, after those who came before. ``cost``: as so many turns."""
        async with self._order:
            while (wait := self._next - self._clock()) > 0:
                await asyncio.sleep(min(wait, _SAMPLE))
                self._adapt(cost)
            self._adapt(cost)
            self._next = self._clock() + cost / self.rate

    def _adapt(self, cost: float) -> None:
        now, used = self._clock(), self._used()
        if self._seen is None:
            self._seen = now, used
        elif now - self._seen[0] >= _SAMPLE:
            busy = (used - self._seen[1]) / (now - self._seen[0])
            self._seen = now, used
            before = self.rate
            factor = max(_SLOWER, min(_FASTER, self._share / max(busy, 1e-6)))
            self.rate = max(LEAST, min(MOST, self.rate * factor))
            if self.rate > before:
                self._next = min(self._next, now + cost / self.rate)
