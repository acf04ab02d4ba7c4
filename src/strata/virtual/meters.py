"""What the energy counters of BMCs show of what their nodes used: seldom just that.

Pure: the truth goes in, the reading comes out.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from strata.virtual.fleet.draw import Floats


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """How a counter counts. Joules and seconds."""

    step: float = 3.6
    """It shows whole multiples of this."""
    begins: float = 0.0
    """What it showed when the node had used nothing."""
    ends: float = math.inf
    """Where it begins anew."""
    sticks: float = math.inf
    """The time from which on it does not move any more."""

    def shows(self, joules: Floats, times: Floats) -> Floats:
        """Readings of one counter: ``joules`` are what the node had used at ``times``, which ascend."""
        held = np.minimum(joules, np.interp(self.sticks, times, joules)) if math.isfinite(self.sticks) else joules
        shown: Floats = np.mod(np.floor((self.begins + held) / self.step) * self.step, self.ends)
        return shown
