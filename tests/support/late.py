"""An event loop to which everything comes late, by chance: shows what holds only because the machine is quick.

All that it does happens on a busy machine as well: what arrives is noticed a while after it arrived, on each connection
for itself; the work of a thread begins late; the process stands still for a moment. What asyncio promises is kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

_LATE = 0.3
"""Of all that arrives, and of all work for threads."""
_STANDS_STILL = 0.005
"""Of all rounds of the loop."""
_ARRIVAL, _MOMENT = 0.010, 0.005
"""Seconds in the mean."""


class LateLoop(asyncio.SelectorEventLoop):
    """Looks at the selector as asyncio's own does, and passes over some of what it finds for some milliseconds."""

    chance = random.Random()

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, float] = {}

    def _process_events(self, event_list: list[Any]) -> None:
        now = time.monotonic()
        due = [event for event in event_list if self._is_due(event[0].fd, now)]
        if event_list and not due:
            time.sleep(0.0005)  # the selector shows them again at once
        if self.chance.random() < _STANDS_STILL:
            time.sleep(self.chance.expovariate(1 / _MOMENT))
        super()._process_events(due)  # type: ignore[misc]  # asyncio's own way to exchange the selector's events

    def _is_due(self, descriptor: int, now: float) -> bool:
        until = self._held.get(descriptor)
        if until is None:
            if self.chance.random() >= _LATE:
                return True
            self._held[descriptor] = now + self.chance.expovariate(1 / _ARRIVAL)
            return False
        if until > now:
            return False
        del self._held[descriptor]
        return True

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """The same, begun late."""
        delay = self.chance.expovariate(1 / _MOMENT) if self.chance.random() < _LATE else 0.0

        def late() -> Any:
            time.sleep(delay)
            return func(*args)

        return super().run_in_executor(executor, late)


class LatePolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops."""

    _loop_factory = LateLoop


def be_late(seed: str) -> None:
    """From now on every loop that is made in this process is one of these."""
    LateLoop.chance.seed(seed)
    asyncio.set_event_loop_policy(LatePolicy())
