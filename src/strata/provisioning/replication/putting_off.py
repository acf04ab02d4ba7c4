"""When to try again what failed: after twice as long each time, for each attempt by itself."""

from __future__ import annotations

from collections.abc import Callable

FIRST, LAST = 1.0, 60.0
"""Seconds."""

Attempt = tuple[str, ...]
"""What was tried, with whom."""


class PuttingOff:
    """What failed lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Attempt, tuple[float, float]] = {}

    def failed(self, what: Attempt) -> None:
        """It failed just now."""
        now = self._clock()
        self._until = {one: (until, waited) for one, (until, waited) in self._until.items() if now - until < LAST}
        wait = min(LAST, max(FIRST, 2 * self._until.get(what, (0.0, 0.0))[1]))
        self._until[what] = (now + wait, wait)

    def done(self, what: Attempt) -> None:
        """It went well."""
        self._until.pop(what, None)

    def seconds(self, what: Attempt) -> float:
        """How long it is still put off; 0: not at all."""
        return max(0.0, self._until.get(what, (0.0, 0.0))[0] - self._clock())

    @property
    def soonest(self) -> float:
        """Seconds until something is due; ``LAST`` where nothing is put off."""
        left = [self.seconds(what) for what in self._until]
        return min([wait for wait in left if wait > 0], default=LAST)
