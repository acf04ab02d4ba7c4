"""What the energy counters of BMCs show of what their nodes used: seldom just that.

Pure: the truth and the time go in, the reading comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.column import Indices
from strata.core.errors import BadRequest
from strata.virtual.fleet.draw import Floats, Stream, uniform

KWH = 3.6e6
"""Joules."""


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """How a counter counts. Joules and seconds."""

    step: float = 1e-6 * KWH
    """It shows whole multiples of this."""
    begins: float = 0.0
    """What it showed when the node had used nothing."""
    ends: float = math.inf
    """Where it begins anew."""
    sticks: float = math.inf
    """It stands still from some time on; at the latest from then on."""
    quiet: bool = False
    """Its BMC tells nothing at all for some minutes now and then."""

    def shows(self, joules: Floats) -> Floats:
        """Readings of one counter; ``joules`` are what its node has used."""
        return _shown(joules, self.step, self.begins, self.ends)


METERS = {
    "fine": Meter(),
    "0.1kWh": Meter(step=0.1 * KWH, begins=12_345.6 * KWH),
    "0.01kWh": Meter(step=0.01 * KWH, begins=512.34 * KWH),
    "0.001kWh": Meter(step=0.001 * KWH, begins=99.999 * KWH),
    "stuck": Meter(step=0.001 * KWH, begins=5 * KWH, sticks=7200.0),
    "wrapping": Meter(step=0.001 * KWH, ends=0.4 * KWH),
    "silent": Meter(step=0.001 * KWH, begins=7 * KWH, quiet=True),
}
"""Kinds of counters, by the names that they have on the command line."""

MIXED = "mixed"
"""All kinds but the fine one."""

EVERY = 2400.0
"""Seconds in which a BMC of the quiet kind is silent once, for ``LEAST`` to ``MOST``."""
LEAST, MOST = 100.0, 900.0


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds that a list of names means: ``0.1kWh,stuck``, or ``mixed``."""
    if text == MIXED:
        return tuple(METERS)[1:]
    kinds = tuple(name.strip() for name in text.split(","))
    for kind in kinds:
        if kind not in METERS:
            known = ", ".join((*METERS, MIXED))
            raise BadRequest(f"there is no energy counter {kind!r}", where="meters", hint=f"there are: {known}")
    return kinds


class Meters:
    """The counters of a fleet: its nodes have the ``kinds`` by turns, each counter with an offset of its own."""

    def __init__(self, count: int, seed: int, kinds: Sequence[str] = ("fine",)) -> None:
        turns = np.arange(count, dtype=np.int64) % len(kinds)
        meters = [METERS[kind] for kind in kinds]
        self.kinds = tuple(kinds[turn] for turn in turns.tolist())
        self._seed = seed
        self._step, self._begins, self._ends, self._sticks = (
            np.array([getattr(meter, name) for meter in meters])[turns] for name in ("step", "begins", "ends", "sticks")
        )
        self._quiet = np.array([meter.quiet for meter in meters])[turns]
        chance = uniform(seed, Stream.METER, np.arange(count, dtype=np.int64))
        self._begins = self._begins + chance * np.where(self._step > METERS["fine"].step, self._step, 0.0)
        self._sticks = self._sticks * chance
        self._held: Floats = np.full(count, np.nan)

    def shows(self, idx: Indices, joules: Floats, now: float) -> Floats:
        """What each counter shows; ``joules`` are what its node has used."""
        sticks = now >= self._sticks[idx]
        if sticks.any():
            held = np.where(np.isnan(self._held[idx]), joules, self._held[idx])
            self._held[idx] = np.where(sticks, held, np.nan)
            joules = np.where(sticks, held, joules)
        return _shown(joules, self._step[idx], self._begins[idx], self._ends[idx])

    def silent(self, idx: Indices, now: float) -> npt.NDArray[np.bool_]:
        """Whose BMCs tell nothing now."""
        found: npt.NDArray[np.bool_] = self._quiet[idx]
        if not found.any():
            return found
        turn, into = divmod(now, EVERY)
        begins, length = (uniform(self._seed, Stream.METER, idx, 2 * int(turn) + part) for part in (1, 2))
        since = into - begins * (EVERY - MOST)
        return found & (since >= 0.0) & (since < LEAST + length * (MOST - LEAST))


def _shown(joules: Floats, step: Floats | float, begins: Floats | float, ends: Floats | float) -> Floats:
    found: Floats = np.mod(np.floor((begins + joules) / step) * step, ends)
    return found
