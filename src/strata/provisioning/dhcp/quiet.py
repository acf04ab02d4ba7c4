"""Says things once. A machine that asks a thousand times a second, or a million machines, fill no log."""

from __future__ import annotations


class Quiet:
    """Lets a key through once per ``every`` seconds, and at most ``burst`` keys a minute. Bounded: the oldest key is
    forgotten first."""

    def __init__(self, *, every: float = 600.0, burst: int = 30, most: int = 1024) -> None:
        self._every = every
        self._burst = burst
        self._most = most
        self._told: dict[str, float] = {}
        self._left = float(burst)
        self._at = 0.0
        self.unsaid = 0
        """What nobody heard of, because there was too much of it."""

    def allows(self, key: str, now: float) -> bool:
        """Whether to speak of ``key`` at ``now`` (monotonic seconds)."""
        told = self._told.get(key)
        if told is not None and now - told < self._every:
            return False
        self._left = min(self._burst, self._left + (now - self._at) * self._burst / 60.0)
        self._at = now
        if self._left < 1.0:
            self.unsaid += 1
            return False
        self._left -= 1.0
        self._told.pop(key, None)
        self._told[key] = now
        if len(self._told) > self._most:
            del self._told[next(iter(self._told))]
        return True
