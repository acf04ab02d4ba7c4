"""Samples for tests."""

from __future__ import annotations

import numpy as np

from strata.power.series.records import Samples

BEGIN = 1_699_999_200
"""A whole hour."""


def at(time: float, values: dict[int, float], metric: str = "power") -> Samples:
    """Samples of one instant."""
    uids = np.array(sorted(values), np.int64)
    return Samples(metric=metric, time=time, uids=uids, values=np.array([values[int(uid)] for uid in uids]))


def steady(start: float, seconds: int, values: dict[int, float], metric: str = "power", pace: int = 1) -> list[Samples]:
    """The same power, or a counter that rises by it, every ``pace`` seconds."""
    counter = metric == "energy"
    return [
        at(start + second, {uid: value * second if counter else value for uid, value in values.items()}, metric)
        for second in range(0, seconds, pace)
    ]
