"""The fences that simulated devices took: one that is older than the last, or the same again, is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices

Bools = npt.NDArray[np.bool_]


class Fences:
    """The last fence of each node."""

    def __init__(self, count: int, *, enforced: bool = True) -> None:
        """``enforced``: whether devices look at fences at all. Off only to show that a check would notice."""
        self.enforced = enforced
        self.refused: Indices = np.zeros(count, dtype=np.int64)
        """How often each refused one."""
        self._epoch: Indices = np.full(count, -1, dtype=np.int64)
        self._generation: Indices = np.full(count, -1, dtype=np.int64)

    def check(self, idx: Indices, arrived: Bools, epochs: Indices | None, generation: Indices | int) -> Bools:
        """Who takes the request; those who do remember its fence. Without ``epochs`` all do whom it reached."""
        if epochs is None or not self.enforced:
            return arrived.copy()
        last = self._epoch[idx]
        stale = (epochs < last) | ((epochs == last) & (generation <= self._generation[idx]))
        fresh: Bools = arrived & ~stale
        self.refused[idx[arrived & stale]] += 1
        self._epoch[idx[fresh]] = epochs[fresh]
        self._generation[idx[fresh]] = generation if isinstance(generation, int) else generation[fresh]
        return fresh
