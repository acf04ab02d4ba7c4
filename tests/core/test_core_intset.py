"""Integer sets as runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core import intset
from strata.core.errors import BadRequest
from support.work import counted

members = st.lists(st.integers(-50, 300) | st.integers(-(2**62), 2**62), max_size=60)


@given(members)
def test_unpacking_what_was_packed_gives_the_same_set(numbers: list[int]) -> None:
    assert intset.unpack(intset.pack(numbers)).tolist() == sorted(set(numbers))


@given(members)
def test_packed_runs_are_sorted_and_never_touch(numbers: list[int]) -> None:
    runs = intset.pack(np.array(numbers, dtype=np.int64))
    assert all(first <= last for first, last in runs)
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(runs))
    assert intset.count(runs) == len(set(numbers))


@given(members, members)
def test_set_algebra_agrees_with_python_sets(one: list[int], other: list[int]) -> None:
    a, b = intset.pack(one), intset.pack(other)
    assert intset.union(a, b) == intset.pack(set(one) | set(other))
    assert intset.difference(a, b) == intset.pack(set(one) - set(other))
    assert intset.contains(a, other).tolist() == [number in set(one) for number in other]


@pytest.mark.parametrize(
    "runs",
    [((3, 1),), ((1, 2), (3, 4)), ((1, 5), (4, 9)), ((7, 8), (1, 2)), ((1,),), (("a", "b"),), ((0, 2**63 - 1),)],
)
def test_runs_that_are_not_in_packed_form_are_refused(runs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(BadRequest):
        intset.unpack(runs)


def test_a_run_over_all_integers_is_refused_and_not_built() -> None:
    with pytest.raises(BadRequest, match="members"):
        intset.unpack(((-(2**63), 2**63 - 1),))


def test_fractions_are_refused() -> None:
    with pytest.raises(BadRequest, match="whole numbers"):
        intset.pack(np.array([1.5]))


def test_a_fleet_in_disorder_is_packed_as_a_whole_and_not_one_by_one() -> None:
    fleet = np.random.default_rng(1).permutation(200_000)[:100_000]
    with counted() as work:
        runs = intset.pack(fleet)
        assert intset.unpack(runs).size == 100_000
    assert work.calls < 10_000
