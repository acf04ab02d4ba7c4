"""Rows of overrides: what is put in comes out, and a writer who missed a change is told."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import Corrupt
from strata.fleet.desires import overrides as rows

offset = st.integers(0, 20)
edits = st.lists(
    st.tuples(
        st.sets(offset, min_size=1),
        st.dictionaries(st.sampled_from("xy"), st.none() | st.sampled_from([("a",), ("a", "b"), ("c",)]), min_size=1),
        st.sampled_from(["alice", "bob"]),
        st.none() | st.integers(0, 12),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(edits)
def test_any_edits_read_back_as_a_dictionary_would(history: list[tuple]) -> None:
    row: rows.Row = {}
    modified = 0
    cells: dict[tuple[int, str], rows.Cell] = {}
    touched: dict[tuple[int, str], int] = {}
    for revision, (offsets, wanted, author, if_match) in enumerate(history, 1):
        order = sorted(offsets)
        edit = rows.edit(row, modified, np.array(order), wanted, author, if_match)
        for at, uid in enumerate(order):
            now = {v: cells[uid, v].values if (uid, v) in cells else None for v in wanted}
            seen = if_match if if_match is not None else revision
            late = [v for v in wanted if touched.get((uid, v), 0) > seen and now[v] != wanted[v]]
            assert (at in edit.conflicts) == bool(late)
            changes = not late and any(
                (cells[uid, v].values if (uid, v) in cells else None) != values for v, values in wanted.items()
            )
            assert edit.changed[at] == changes
            for variable, values in wanted.items() if not late else ():
                before = cells.pop((uid, variable), None)
                if (before.values if before else None) == values:
                    if before:
                        cells[uid, variable] = before
                    continue
                touched[uid, variable] = revision
                if values is not None:
                    cells[uid, variable] = rows.Cell(values, author, revision)
        if edit.changed.any():
            row, modified = rows.decode(rows.encode(edit.row), "row"), revision
    overrides = rows.Overrides()
    overrides.put(0, row, modified)
    for uid in range(21):
        assert overrides.of(uid) == {v: cell for (at, v), cell in cells.items() if at == uid}
    table: list[tuple[str, ...]] = [()]
    codes = overrides.codes("x", np.arange(21), lambda values: table.append(values) or len(table) - 1)  # type: ignore[func-returns-value]
    assert [table[code] for code in codes.tolist()] == [
        cells[uid, "x"].values if (uid, "x") in cells else () for uid in range(21)
    ]


def test_unsetting_is_a_change_that_a_late_writer_is_told_of() -> None:
    at = np.array([5])
    first = rows.edit({}, 0, at, {"x": ("a",)}, "alice").row
    second = rows.edit(first, 10, at, {"x": None}, "alice").row
    late = rows.edit(second, 11, at, {"x": ("b",)}, "bob", if_match=10)
    assert late.conflicts == {0: "x"} and not late.changed.any()
    assert not rows.edit(second, 11, at, {"y": ("b",)}, "bob", if_match=10).conflicts
    assert rows.edit(second, 11, at, {"x": ("b",)}, "bob", if_match=11).changed.all()


def test_a_wiped_node_leaves_no_trace_and_an_empty_row_is_nothing() -> None:
    row = rows.edit({}, 0, np.array([1]), {"x": ("a",)}, "alice").row
    row = rows.edit(row, 7, np.array([2]), {"y": ("b",)}, "alice").row
    left = rows.wiped(row, 8, 1)
    assert set(left) == {"y"}
    overrides = rows.Overrides()
    overrides.put(0, left, 9)
    assert overrides.of(2)["y"].revision == 8, "the other node's cell keeps the revision at which it was written"
    assert rows.wiped(left, 9, 2) == {}


def test_what_counts_as_said_before_stays_when_another_node_goes() -> None:
    row = rows.edit({}, 0, np.array([1, 2]), {"x": ("a",)}, "a rollout", amend=True).row
    overrides = rows.Overrides()
    overrides.put(0, rows.wiped(row, 8, 7), 9)
    assert {uid: overrides.of(uid)["x"].values for uid in (1, 2)} == {1: ("a",), 2: ("a",)}
    assert overrides.of(1)["x"].revision == 1, "before all else, and not never"


def test_a_row_does_not_grow_with_its_past() -> None:
    row: rows.Row = {}
    for revision in range(1, 200):
        row = rows.edit(row, revision - 1, np.arange(50), {"x": (f"image-{revision}",)}, f"user{revision}").row
    assert row["x"].words == (("image-199",),) and row["x"].authors == ("user199",)


@pytest.mark.parametrize(
    "value",
    [
        b"junk",
        msgspec.msgpack.encode({"x": 7}),
        msgspec.msgpack.encode({"x": rows.Field((("a",),), b"\0\0", (), b"", b"")}),
        msgspec.msgpack.encode({"x": rows.Field((), b"\x07\0" * 1000, (), bytes(2000), bytes(8000))}),
    ],
)
def test_a_damaged_row_is_named_and_never_served(value: bytes) -> None:
    with pytest.raises(Corrupt, match="desire/node/000001"):
        rows.decode(value, "desire/node/000001")
