"""How much nodes have risen, or fallen, within a minute: what a ramp is about."""

from __future__ import annotations

import numpy as np

from strata.power.capping.terms import Column, Rows

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
        """Moves of nodes are over."""
        self.ended[rows] = np.minimum(self.ended[rows], now)

    def within(self, now: float) -> float:
        """Watts that count now."""
        gone = self.ended <= now - MINUTE
        self.watts[gone] = 0.0
        return float(self.watts.sum())
