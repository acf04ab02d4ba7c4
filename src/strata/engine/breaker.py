"""The failure-rate stop: a mutation that fails on too many nodes is not started any more, but probed now and then."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from strata.engine.settings import EngineSettings


class Breaker:
    """Watches the outcomes of one mutation over the fleet. What was never tried on a node is no outcome."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._succeeded: deque[tuple[float, int]] = deque()  # time, how many
        self._good = 0
        self._failed: OrderedDict[int, float] = OrderedDict()  # node → when it last failed: each counts once
        self.stopped_since: float | None = None

    def succeeded(self, now: float, count: int) -> None:
        """So many nodes ended well."""
        if self.stopped_since is not None:
            self.reset()
        self._succeeded.append((now, count))
        self._good += count

    def failed(self, now: float, nodes: Iterable[int]) -> None:
        """These nodes ended badly."""
        for node in nodes:
            self._failed[node] = now
            self._failed.move_to_end(node)
        if self.stopped_since is not None:
            self.stopped_since = now
            return
        self._expire(now)
        bad = len(self._failed)
        if bad >= self._settings.stop_minimum and bad > self._settings.stop_ratio * (self._good + bad):
            self.stopped_since = now

    def allowance(self, now: float, under_way: int) -> int | None:
        """How many may start now, while ``under_way`` have not ended; None: no limit."""
        if self.stopped_since is None:
            return None
        if now < self.probes_at:
            return 0
        return max(0, self._settings.stop_probe - under_way)

    @property
    def probes_at(self) -> float:
        """When a stopped mutation is tried again."""
        return (self.stopped_since or 0.0) + self._settings.stop_cooldown

    def reset(self) -> None:
        """Start afresh: a person, or a successful probe, says that it works."""
        self._succeeded.clear()
        self._failed.clear()
        self._good = 0
        self.stopped_since = None

    def _expire(self, now: float) -> None:
        begin = now - self._settings.stop_window
        while self._succeeded and self._succeeded[0][0] < begin:
            self._good -= self._succeeded.popleft()[1]
        while self._failed and next(iter(self._failed.values())) < begin:
            self._failed.popitem(last=False)
