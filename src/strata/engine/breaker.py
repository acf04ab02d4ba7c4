"""The failure-rate stop: a mutation that fails too often is not started any more, but probed now and then."""

from __future__ import annotations

from collections import deque

from strata.engine.settings import EngineSettings


class Breaker:
    """Watches the outcomes of one mutation over the fleet."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._outcomes: deque[tuple[float, int, int]] = deque()  # time, succeeded, failed
        self._good = 0
        self._bad = 0
        self.stopped_since: float | None = None
        self._probing = 0

    def record(self, now: float, good: int, bad: int) -> None:
        """Some nodes ended well, some badly."""
        self._outcomes.append((now, good, bad))
        self._good += good
        self._bad += bad
        self._probing = max(0, self._probing - good - bad)
        if self.stopped_since is not None:
            if good and not bad:
                self.reset()
            elif bad:
                self.stopped_since = now
            return
        self._expire(now)
        enough = self._bad >= self._settings.stop_minimum
        if enough and self._bad > self._settings.stop_ratio * (self._good + self._bad):
            self.stopped_since = now
            self._probing = 0

    def allowance(self, now: float) -> int | None:
        """How many may start now; None: no limit."""
        if self.stopped_since is None:
            return None
        if now < self.probes_at:
            return 0
        return max(0, self._settings.stop_probe - self._probing)

    def started(self, count: int) -> None:
        """``count`` nodes were started."""
        if self.stopped_since is not None:
            self._probing += count

    @property
    def probes_at(self) -> float:
        """When a stopped mutation is tried again."""
        return (self.stopped_since or 0.0) + self._settings.stop_cooldown

    def reset(self) -> None:
        """Start afresh: a person, or a successful probe, says that it works."""
        self._outcomes.clear()
        self._good = self._bad = self._probing = 0
        self.stopped_since = None

    def _expire(self, now: float) -> None:
        while self._outcomes and self._outcomes[0][0] < now - self._settings.stop_window:
            _, good, bad = self._outcomes.popleft()
            self._good -= good
            self._bad -= bad
