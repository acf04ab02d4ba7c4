"""What a virtual machine draws: a modest model over what is real, the processor time that its process takes."""

from __future__ import annotations

from strata.core.process import Process

STANDBY_WATTS, IDLE_WATTS, WORK_WATTS = 8.0, 60.0, 90.0
"""Off; on and idle; more than that when one of this machine's processors works for it all the time."""
_SHORTEST = 0.5
"""Seconds: over less than this, processor time is too coarse."""


class Meter:
    """Read now and then. Time is an argument."""

    def __init__(self) -> None:
        self.watts = STANDBY_WATTS
        self.joules = 0.0
        self._last: tuple[float, float, Process | None] | None = None

    def read(self, now: float, process: Process | None) -> None:
        """Bring ``watts`` and ``joules`` up to ``now``; ``process`` is None while the machine is off."""
        spent = 0.0 if process is None else process.cpu_seconds
        if self._last is None or self._last[2] != process:
            if self._last is not None:
                self.joules += self.watts * max(0.0, now - self._last[0])
            self.watts = STANDBY_WATTS if process is None else IDLE_WATTS
            self._last = now, spent, process
            return
        since = now - self._last[0]
        if since < _SHORTEST:
            return
        share = min(1.0, max(0.0, spent - self._last[1]) / since)
        self.watts = STANDBY_WATTS if process is None else round(IDLE_WATTS + WORK_WATTS * share, 1)
        self.joules += self.watts * since
        self._last = now, spent, process
