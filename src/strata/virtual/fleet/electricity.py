"""What simulated nodes draw: whether they are fed, what caps them, and what they have used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.virtual.fleet.draw import Floats, Stream, uniform
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import GPUS

Bools = npt.NDArray[np.bool_]

_GPU_SHARE = 0.6
"""Of what a node with accelerators draws, what they do."""


class Electricity:
    """Watts and joules of every node. Knows neither whether they are on nor what they do: it is told."""

    def __init__(self, count: int, seed: int, timing: Timing, first_gpu: int) -> None:
        """``first_gpu``: this node and all that follow have accelerators."""
        self._timing = timing
        self.first_gpu = first_gpu
        self.gpu_caps: Floats = np.full((count - first_gpu, GPUS), np.inf)
        """Watts that each accelerator may draw, a row for each node that has any: see ``set_gpu_cap``."""
        self._gpus_capped = False
        self.fed: Bools = np.ones(count, dtype=np.bool_)
        """Who gets electricity at all."""
        self.caps: Floats = np.full(count, np.inf)
        """Watts that each may draw: see ``set_cap``."""
        self._thirst = 0.9 + 0.2 * uniform(seed, Stream.DRAW, np.arange(count, dtype=np.int64))
        self._joules: Floats = np.zeros(count)
        self._metered: Floats = np.zeros(count)

    def set_cap(self, idx: Indices, watts: float | None) -> None:
        """Cap what each draws while it is on; None takes the cap off."""
        self.caps[idx] = np.inf if watts is None else watts

    def set_gpu_cap(self, node: int, gpu: int, watts: float | None) -> None:
        """Cap what one accelerator of a node draws; None takes the cap off."""
        self.gpu_caps[node - self.first_gpu, gpu] = np.inf if watts is None else watts
        self._gpus_capped = bool(np.isfinite(self.gpu_caps).any())

    def watts(self, idx: Indices, on: Bools, busy: Bools) -> Floats:
        """What each draws that is ``on`` or not, and ``busy`` or not."""
        drawn = self._wanted(idx, on, busy)
        if self._gpus_capped:
            drawn = drawn - self._held_back(idx, on, drawn)
        drawn = np.where(on, np.minimum(drawn, self.caps[idx]), drawn)
        return np.where(self.fed[idx], drawn, 0.0)

    def gpu_watts(self, idx: Indices, on: Bools, busy: Bools) -> Floats:
        """What each of their accelerators draws, a row for each node; NaN for those that have none. A cap of the whole
        node slows all of it down alike."""
        wanted = self._wanted(idx, on, busy)
        free = wanted - self._held_back(idx, on, wanted)
        slowed = np.divide(self.watts(idx, on, busy), free, out=np.zeros(len(idx)), where=free > 0)
        each = np.minimum((wanted * _GPU_SHARE / GPUS)[:, None], self._caps_of_gpus(idx))
        found: Floats = np.where((idx >= self.first_gpu)[:, None], each * (slowed * on)[:, None], np.nan)
        return found

    def _wanted(self, idx: Indices, on: Bools, busy: Bools) -> Floats:
        """What each would draw if nothing were capped."""
        timing = self._timing
        drawn = np.where(on, np.where(busy, timing.busy_watts, timing.idle_watts), timing.standby_watts)
        return drawn * self._thirst[idx]

    def _held_back(self, idx: Indices, on: Bools, wanted: Floats) -> Floats:
        """What the caps of accelerators take away from that."""
        each = (wanted * _GPU_SHARE / GPUS)[:, None]
        found: Floats = np.where(on, np.maximum(0.0, each - self._caps_of_gpus(idx)).sum(axis=1), 0.0)
        return found

    def _caps_of_gpus(self, idx: Indices) -> Floats:
        """A row for each node; without accelerators nothing is capped."""
        found = np.full((len(idx), GPUS), np.inf)
        having = idx >= self.first_gpu
        found[having] = self.gpu_caps[idx[having] - self.first_gpu]
        return found

    def joules(self, idx: Indices, watts: Floats, now: float) -> Floats:
        """What each has used: what it draws now, summed up from look to look."""
        since = np.maximum(0.0, now - self._metered[idx])
        self._joules[idx] += watts * since
        self._metered[idx] = np.maximum(self._metered[idx], now)
        return self._joules[idx]
