"""What a governor believes that nodes are used for: what is seen may be older than what it has done itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strata.power.capping.ledger import Ledger
from strata.power.capping.terms import Mask, Rows, Use
from strata.power.plant import UNSEEN

HOLD = 600.0
"""Seconds for which a node counts as starting, or as busy, before it has been seen so: what is seen may be old."""


class Belief:
    """Of ``count`` nodes."""

    def __init__(self, count: int) -> None:
        self._until = np.full(count, -np.inf)

    def hold(self, rows: Rows | slice, now: float) -> None:
        """What the ledger says of ``rows`` is believed for a while, whatever is seen."""
        self._until[rows] = now + HOLD

    @property
    def held(self) -> Mask:
        """Nodes that have not been seen as the ledger has them since."""
        found: Mask = np.isfinite(self._until)
        return found

    def see(self, ledger: Ledger, looked: NDArray[np.int8], now: float) -> NDArray[np.int8]:
        """Note what nodes are used for, as far as it is believed; what is."""
        seen = np.where(looked == UNSEEN, ledger.use, looked)
        self._until[looked == ledger.use] = -np.inf
        up = (ledger.use == Use.BOOTING) & (seen == Use.IDLE)
        doubted = (seen < ledger.use) & ~up & (now < self._until)
        changed = (seen != ledger.use) & ~doubted
        for use in np.unique(seen[changed]):
            ledger.occupy(np.flatnonzero(changed & (seen == use)), Use(int(use)), now)
        return np.where(doubted, ledger.use, seen)
