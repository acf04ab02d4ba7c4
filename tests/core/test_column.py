"""Columns: many nodes' values at once, one column after the other, and places that are evenly apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.column import Column, Indices, span


@st.composite
def places(draw: st.DrawFn) -> Indices:
    """Some places of an array, each once: a run, every third, or anyhow; sometimes with two of them swapped."""
    first, step, count = draw(st.integers(0, 50)), draw(st.integers(1, 20)), draw(st.integers(0, 200))
    found = np.arange(first, first + step * count, step)
    if draw(st.booleans()) and count > 2:
        found = np.delete(found, draw(st.integers(0, count - 1)))
    if draw(st.booleans()) and len(found) > 2:
        one, other = draw(st.integers(0, len(found) - 1)), draw(st.integers(0, len(found) - 1))
        found[[one, other]] = found[[other, one]]
    return found


@given(places())
def test_a_span_is_the_same_places_in_the_same_order(nodes: Indices) -> None:
    values = np.arange(5000)
    assert np.array_equal(values[span(nodes)], values[nodes])


@pytest.mark.parametrize("step", [1, 16])
def test_nodes_that_are_evenly_apart_are_a_slice(step: int) -> None:
    assert span(np.arange(7, 7 + 1000 * step, step)) == slice(7, 7 + 999 * step + 1, step)


@given(st.lists(st.lists(st.sampled_from(["on", "off", "v1", "unknown"])), min_size=1, max_size=5))
def test_columns_one_after_the_other_say_what_each_of_them_said(parts: list[list[str]]) -> None:
    joined = Column.joined([Column.of(part) for part in parts])
    assert joined.values() == [value for part in parts for value in part]


def test_reasons_stay_with_their_nodes_when_columns_are_joined() -> None:
    first, second = Column.of(["on", None]), Column.of([None, "off"])
    first.reasons, second.reasons = {1: "silent"}, {0: "hung"}
    assert Column.joined([first, second]).reasons == {1: "silent", 2: "hung"}
