"""Sets of integers as sorted, disjoint runs: how durable rows hold many uids in few bytes.

A run is ``(first, last)``, both inside. Packed form: sorted, no two runs touch or overlap, so equal sets have equal
packed forms. Knows nothing of what the integers mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct
from strata.core.errors import BadRequest

Runs = tuple[tuple[int, int], ...]
Integers = npt.NDArray[np.int64]

MOST = 100_000_000
"""The most members that ``unpack`` makes: a damaged or hostile row must not eat the memory."""


def pack(members: npt.ArrayLike | Iterable[int]) -> Runs:
    """The runs that hold just ``members`` (any order, repeats allowed)."""
    array = _array(members)
    if not array.size:
        return ()
    steps = np.diff(array)
    if (steps < 1).any():
        array = distinct(array)
        steps = np.diff(array)
    breaks = np.flatnonzero(steps != 1)
    firsts = array[np.concatenate(([0], breaks + 1))]
    lasts = array[np.concatenate((breaks, [array.size - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def unpack(runs: Sequence[Sequence[int]]) -> Integers:
    """The members of ``runs``, ascending. Raises ``BadRequest`` unless they are in packed form."""
    if not runs:
        return np.empty(0, dtype=np.int64)
    firsts, lasts = _bounds(runs)
    total = float((lasts.astype(np.float64) - firsts + 1).sum())  # as float: no wrap; near enough to refuse by
    if total > MOST:
        raise BadRequest(f"{total:.0f} members; at most {MOST} are taken", where="runs")
    lengths = lasts - firsts + 1
    # One arange over everything, shifted per run: no Python loop over the runs.
    shifts = firsts - np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shifts, lengths)


def count(runs: Sequence[Sequence[int]]) -> int:
    """How many members ``runs`` has."""
    return sum(last - first + 1 for first, last in runs)


def contains(runs: Sequence[Sequence[int]], members: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """For each of ``members``: is it in ``runs``? Without unpacking."""
    asked = np.asarray(members, dtype=np.int64)
    if not runs:
        return np.zeros(asked.shape, dtype=np.bool_)
    firsts, lasts = _bounds(runs)
    place = np.searchsorted(firsts, asked, side="right") - 1
    inside: npt.NDArray[np.bool_] = (place >= 0) & (asked <= lasts[place])
    return inside


def union(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> Runs:
    """Members of either."""
    return pack(np.concatenate((unpack(one), unpack(other))))


def difference(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> Runs:
    """Members of ``one`` that ``other`` has not."""
    members = unpack(one)
    return pack(members[~contains(other, members)])


def _array(members: npt.ArrayLike | Iterable[int]) -> Integers:
    if isinstance(members, np.ndarray):
        if members.dtype.kind not in "iu" and members.size:
            raise BadRequest(f"whole numbers are needed, not {members.dtype}", where="runs")
        return members.astype(np.int64, copy=False).ravel()
    return np.fromiter(members, dtype=np.int64)  # type: ignore[arg-type]


def _bounds(runs: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    try:
        pairs = np.array(runs, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        raise BadRequest("a run is a pair of whole numbers", where="runs") from None
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise BadRequest("a run is a pair of whole numbers", where="runs")
    firsts, lasts = pairs[:, 0], pairs[:, 1]
    # Overlap is compared, not subtracted: the difference of two far integers would wrap.
    if (firsts > lasts).any() or (firsts[1:] <= lasts[:-1]).any() or (firsts[1:] - lasts[:-1] == 1).any():
        raise BadRequest("runs must be sorted, disjoint and not touching", where="runs")
    return firsts, lasts
