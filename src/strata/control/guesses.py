"""Wrong passwords, counted by name, and when they lock somebody out. In memory: guessing writes nothing anywhere."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

LOCK_AFTER = 5
"""Wrong passwords in a row after which a name is locked."""
LOCK_TIME = 60.0
"""Seconds that a lock lasts, and after which wrong passwords are forgotten."""

_MOST = 10_000


class Guesses:
    """Who was guessed at, and how often. Names that nobody has are counted too, so that they tell nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def locks(self, name: str) -> bool:
        """Whether there were too many just now."""
        count, last = self._counts.get(name, (0, 0.0))
        return count >= LOCK_AFTER and self._clock() < last + LOCK_TIME

    def add(self, name: str) -> None:
        """One more. It does not prolong a lock, or anybody could keep the owner out for ever."""
        if self.locks(name):
            return
        now = self._clock()
        count, last = self._counts.pop(name, (0, 0.0))
        self._counts[name] = (count + 1 if now < last + LOCK_TIME and count < LOCK_AFTER else 1, now)
        while len(self._counts) > _MOST:
            self._counts.popitem(last=False)

    def forget(self, name: str) -> None:
        """The right one was given, or somebody with the right to do so unlocks it."""
        self._counts.pop(name, None)
