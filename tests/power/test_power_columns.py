"""What is known of nodes' power right now."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.power.telemetry.columns import Kind, PowerColumns
from support.work import counted


def uids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_what_nobody_has_looked_at_is_not_known() -> None:
    rows = PowerColumns().rows(uids(3, 100_000))
    assert np.isnan(rows.cap).all()
    assert rows.kinds[int(rows.kind[0])] == Kind()


def test_a_look_from_before_a_cap_was_set_does_not_undo_it() -> None:
    columns = PowerColumns()
    columns.put(uids(1, 2), cap=np.array([300.0, 300.0]), cap_time=10.0)
    columns.put(uids(1, 2), cap=0.0, cap_time=np.array([9.0, 11.0]))
    assert columns.column("cap", uids(1, 2)).tolist() == [300.0, 0.0]
    assert columns.column("cap_time", uids(1, 2)).tolist() == [10.0, 11.0]


def test_rows_are_copies_and_what_is_forgotten_is_not_known() -> None:
    columns = PowerColumns()
    columns.put(uids(5), power=1.0)
    columns.describe(uids(5), Kind("a", "A"))
    rows = columns.rows(uids(5))
    columns.forget(uids(5, 9_999_999))
    assert (rows.power.tolist(), rows.kinds[int(rows.kind[0])].desc) == ([1.0], "A")
    assert np.isnan(columns.rows(uids(5)).power).all()


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadRequest, match="volts"):
        PowerColumns().put(uids(1), volts=1.0)
    with pytest.raises(BadRequest):
        PowerColumns().put(uids(10**12), power=1.0)


def test_a_hundred_thousand_nodes_are_noted_at_once_and_not_one_by_one() -> None:
    columns, many = PowerColumns(), np.arange(100_000, dtype=np.int64)
    columns.put(many, power=1.0, power_time=1.0)
    with counted() as work:
        columns.put(many, power=6.0, power_time=2.0)
    assert columns.column("power", many[-1:]).tolist() == [6.0]
    assert work.calls < 500
