"""What breaks on simulated nodes by itself: when the next hazard strikes each, and of which kind it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.distinct import distinct
from strata.virtual.draw import Floats, Stream, uniform
from strata.virtual.faults import NO_FAULTS, RATES, Faults


class Hazards:
    """Drawn by seed, one after the other for each node. What a hazard does is not its affair."""

    def __init__(self, count: int, seed: int) -> None:
        self._seed = seed
        self._faults = NO_FAULTS
        self._strikes: Indices = np.zeros(count, dtype=np.int64)
        self.due: Floats = np.full(count, np.inf)
        """When the next one strikes each."""
        self.struck: dict[str, int] = dict.fromkeys(RATES, 0)
        """How often each kind hit a node, by itself or because somebody made it."""

    def set(self, faults: Faults, now: float) -> None:
        """From ``now`` on, they come at these rates."""
        self._faults = faults
        self.due[:] = np.inf
        self._aim(np.arange(len(self.due), dtype=np.int64), np.full(len(self.due), now))

    def kinds(self, idx: Indices) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """What strikes these nodes next, each kind with those of them that it strikes."""
        rates = np.array([getattr(self._faults, name) for name in RATES])
        kind = np.searchsorted(
            np.cumsum(rates) / rates.sum(),
            uniform(self._seed, Stream.KIND, idx, self._strikes[idx]),
            side="right",
        )
        for code in distinct(kind).tolist():
            yield RATES[min(code, len(RATES) - 1)], kind == code

    def passed(self, idx: Indices) -> None:
        """It struck these nodes: draw the next one."""
        self._strikes[idx] += 1
        self._aim(idx, self.due[idx])

    def _aim(self, idx: Indices, since: Floats) -> None:
        rate = sum(getattr(self._faults, name) for name in RATES) / 3600
        if rate:
            chance = uniform(self._seed, Stream.HAZARD, idx, self._strikes[idx])
            self.due[idx] = since - np.log1p(-chance) / rate
