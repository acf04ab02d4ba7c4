"""The steps of a history: how long they may be, when each begins, and what goes where among them. Pure."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from strata.power.series import Floats


def whole(step: float) -> float:
    """The next longer step that a series has: whole seconds, above a minute whole minutes."""
    return float(math.ceil(step)) if step <= 60 else 60.0 * math.ceil(step / 60)


def steps(start: float, end: float, step: float) -> Floats:
    """When each step from ``start`` to ``end`` begins: at whole multiples of it."""
    first = math.floor(start / step)
    return np.arange(first, max(first + 1, math.ceil(end / step))) * step


def places(times: Floats, found: Floats) -> npt.NDArray[np.intp]:
    """Where among all steps those are that have samples."""
    return np.minimum(np.searchsorted(times, found - 1e-6), len(times) - 1)


def spread_out(count: int, places: npt.NDArray[np.intp], values: Floats) -> Floats:
    """One value for each step; NaN for those without samples, so that a gap shows as one."""
    found = np.full(count, np.nan)
    found[places] = values
    return found
