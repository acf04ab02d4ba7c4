"""What nodes used: from their energy counters where these say as much as the power readings do, else from those."""

from __future__ import annotations

import numpy as np

from strata.power.downsample import ROW, Fold
from strata.power.series import METRICS, Energy, Flags, Times, Uids

AS_GOOD = 0.01
"""A counter is preferred as long as it covers no more than this much less of the time than the power does."""

_ROUNDING = 1e-6
"""Sums are kept with seven digits."""


def energy_of(uids: Uids, start: float, end: float, counter: Fold, power: Fold) -> Energy:
    """Both folds are of these nodes and this time."""
    length = max(end - start, 1e-9)
    counters, powers = counter.summary, power.summary
    known_c, known_p = counters[ROW["covered"]] / length, powers[ROW["covered"]] / length
    flags_c, flags_p = counter.flags(), power.flags()
    # A counter that stands still while the node draws power counts nothing.
    dead = (counters[ROW["joules"]] <= 0.0) & (powers[ROW["joules"]] > 1.0) & (flags_c.stuck > 0)
    counted = (known_c > 0.0) & (known_c >= known_p - AS_GOOD) & ~dead
    peak = np.where(powers[ROW["n"]] > 0, powers[ROW["high"]], counters[ROW["high"]])
    peak = np.where(np.isfinite(peak), peak, np.nan)
    flags = Flags(
        gaps=np.where(counted, flags_c.gaps, flags_p.gaps),
        resets=flags_c.resets,
        wraps=flags_c.wraps,
        absurd=flags_c.absurd + flags_p.absurd,
        stuck=np.where(counted, flags_c.stuck, np.where(dead, np.maximum(flags_c.stuck, flags_p.stuck), flags_p.stuck)),
    )
    return Energy(
        uids=uids,
        joules=np.where(counted, counters[ROW["joules"]], powers[ROW["joules"]]),
        known=np.clip(np.where(counted, known_c, known_p), 0.0, 1.0),
        error=np.where(counted, _counter_error(counter), _power_error(power)),
        counted=counted,
        peak=peak,
        flags=flags,
    )


def _counter_error(fold: Fold) -> Times:
    """The two ends of each unbroken stretch are rounded, and may be off in time by the spread of their row."""
    found = fold.summary
    broken = found[ROW["resets"]] + found[ROW["absurd"]] + found[ROW["gaps"]]
    ends = METRICS["energy"].quantum * (1.0 + broken)
    high = np.maximum(found[ROW["high"]], 0.0)
    wide = np.spacing(np.nan_to_num(found[ROW["last_v"]]))
    return np.asarray(found[ROW["error"]] + ends + wide + _shift(fold, high) + _ROUNDING * found[ROW["joules"]])


def _power_error(fold: Fold) -> Times:
    found = fold.summary
    high = np.maximum(found[ROW["high"]], 0.0)
    rounding = METRICS["power"].quantum / 2 * found[ROW["covered"]]
    return np.asarray(found[ROW["error"]] + rounding + _shift(fold, high) + _ROUNDING * found[ROW["joules"]])


def _shift(fold: Fold, high: Times) -> Times:
    return np.asarray(2.0 * fold.summary[ROW["spread"]] * np.where(np.isfinite(high), high, 0.0))
