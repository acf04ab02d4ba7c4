"""Sets of numbers as sorted arrays. numpy's own (``np.unique`` and what is made of it) hashes integers since 2.3,
and takes seconds for a million of them; ours are mostly indices and codes, which lie close together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)

_FEW = 64
"""Below this sorting is quickest."""
_SPARSE = 4
"""A table is made where the numbers' range is at most so many times as long as there are numbers."""

_COMPARED = 2048
"""Up to so many comparisons, making them all is quicker than what ``np.isin`` prepares to make fewer."""


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """The values in order, each once: what ``np.unique`` gives."""
    values = values.ravel()
    if len(values) < 2:
        return values.copy()
    if len(values) > _FEW and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if high - low <= _SPARSE * len(values):
            there = np.zeros(high - low + 1, dtype=np.bool_)
            there[values.astype(np.int64) - low if low else values] = True
            found = np.flatnonzero(there)
            return (found + low if low else found).astype(values.dtype, copy=False)
    ordered = np.sort(values)
    first = np.empty(len(ordered), dtype=np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def among(values: npt.NDArray[T], others: npt.NDArray[T] | Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which of the values are in ``others``: what ``np.isin`` gives, and at once where both are few."""
    if len(values) * len(others) > _COMPARED:
        return np.isin(values, others)
    found: npt.NDArray[np.bool_] = (values[:, None] == np.asarray(others)).any(axis=1)
    return found


def united(one: npt.NDArray[T], other: npt.NDArray[T]) -> npt.NDArray[T]:
    """What is in either: what ``np.union1d`` gives."""
    return distinct(np.concatenate((one, other)))


def without(one: npt.NDArray[T], other: npt.NDArray[T]) -> npt.NDArray[T]:
    """What is in ``one`` and not in ``other``: what ``np.setdiff1d`` gives."""
    found = distinct(one)
    return found[~among(found, other)]


def common(one: npt.NDArray[T], other: npt.NDArray[T]) -> npt.NDArray[T]:
    """What is in both: what ``np.intersect1d`` gives."""
    found = distinct(one)
    return found[among(found, other)]
