"""What the benchmarks share."""

from __future__ import annotations

import pytest
from measure import percentile, show


def test_a_percentile_is_a_value_that_occurred() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert percentile(ordered, 0.5) == 51
    assert percentile(ordered, 0.99) == 100
    assert percentile([7.0], 0.99) == 7


def test_figures_are_shown_with_four_digits_and_counts_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show({"seconds": 1.23456789, "rate": 123456.7, "nodes": 100_000, "names": ["a"]}, as_json=True)
    assert capsys.readouterr().out == '{"seconds": 1.235, "rate": 123457, "nodes": 100000, "names": ["a"]}\n'
