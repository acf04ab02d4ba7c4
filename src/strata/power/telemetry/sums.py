"""What many nodes draw together, and what was wrong with their samples. Pure."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from strata.power.series.records import Flags, Floats
from strata.power.telemetry.records import PowerSummary, Trouble

ENOUGH = 0.9
"""Of the nodes that were measured at best: with fewer, a sum is not that of the whole."""


def trouble(flags: Flags, place: int | slice) -> Trouble:
    """What was wrong with one node, or with all of them together."""
    return Trouble(**{name: int(np.sum(getattr(flags, name)[place])) for name in Trouble.__struct_fields__})


def summary(name: str, latest: Floats, caps: Floats, sums: Floats) -> PowerSummary:
    """What a part of the machine draws: ``latest`` and ``caps`` of each node now, ``sums`` of all of them over time."""
    now, known = latest[np.isfinite(latest)], sums[np.isfinite(sums)]
    least, average, most = (float(f(known)) for f in (np.min, np.mean, np.max)) if len(known) else (None,) * 3
    return PowerSummary(
        name=name,
        nodes=len(latest),
        measured=len(now),
        now=float(now.sum()) if len(now) else None,
        least=least,
        average=average,
        most=most,
        caps=float(caps.sum()) if len(caps) and bool((caps > 0).all()) else None,
    )


def by_group(values: Floats, groups: npt.NDArray[np.int32], count: int) -> Floats:
    """Sums of each row by group; NaN where too little of the group is known."""
    sums, seen = np.zeros((len(values), count)), np.zeros((len(values), count), dtype=np.int64)
    for place, row in enumerate(values):
        known = np.isfinite(row)
        seen[place] = np.bincount(groups[known], minlength=count)
        sums[place] = np.bincount(groups[known], weights=row[known], minlength=count)
    return whole_sums(sums, seen)


def whole_sums(sums: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Sums over about as many nodes as ever; what is summed over fewer would pass for a low."""
    enough = (counts > 0) & (counts >= ENOUGH * counts.max(axis=0, initial=0))
    return np.where(enough, sums, np.nan)


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
