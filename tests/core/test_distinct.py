"""Sets of numbers: the same as numpy's, at a cost that does not explode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.distinct import among, common, distinct, united, without

NUMBERS = st.lists(st.one_of(st.integers(-5, 200), st.integers(-(2**62), 2**62)), max_size=200)


@given(NUMBERS, NUMBERS, st.sampled_from([np.int64, np.int32, np.int8, np.float64]))
def test_they_are_what_numpy_says(one: list[int], other: list[int], kind: type[np.generic]) -> None:
    a, b = (np.array(numbers, dtype=np.int64).astype(kind) for numbers in (one, other))
    for ours, theirs in (
        (distinct(a), np.unique(a)),
        (united(a, b), np.union1d(a, b)),
        (without(a, b), np.setdiff1d(a, b)),
        (common(a, b), np.intersect1d(a, b)),
    ):
        assert ours.dtype == a.dtype
        assert ours.tolist() == theirs.tolist()
    for few, of in ((a, b), (a[:9], b[:9]), (a, b[:0]), (a[:0], b), (a, [1, 2])):
        assert among(few, of).tolist() == np.isin(few, of).tolist()


def test_few_are_compared_without_what_numpy_prepares_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "isin")
    assert among(np.arange(24), np.array([3, 30])).tolist() == [n == 3 for n in range(24)]
    assert without(np.arange(24), np.arange(1, 40)).tolist() == [0]


@pytest.mark.parametrize("low", [0, 7, -3])
def test_many_that_lie_close_together_are_not_sorted(monkeypatch: pytest.MonkeyPatch, low: int) -> None:
    monkeypatch.delattr(np, "sort")
    values = np.tile(np.arange(low, low + 1000), 3)[::-1]
    assert distinct(values).tolist() == list(range(low, low + 1000))


def test_what_is_given_is_left_as_it_is() -> None:
    values = np.array([3, 1, 2, 3])
    found = distinct(values)
    found[0] = 9
    one = distinct(values[:1])
    one[0] = 9
    assert values.tolist() == [3, 1, 2, 3]
