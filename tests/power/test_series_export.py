"""Exports are read by programs that are not ours."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from series_support import BEGIN, at, steady

from strata.core.errors import BadRequest
from strata.power.series.series import Series
from strata.power.telemetry import export as exporting
from strata.power.telemetry.export import export


@pytest.fixture
async def series(tmp_path: Path) -> AsyncIterator[Series]:
    found = Series.in_file(tmp_path / "telemetry.db", clock=lambda: 4e9)
    await found.start()
    await found.append(steady(BEGIN, 200, {uid: 100.0 + uid / 8 for uid in range(1, 21)}))
    await found.append([at(BEGIN + 200.25, {3: 500.0})])
    yield found
    await found.close()


async def whole(series: Series, kind: str, uids: list[int], step: float = 0) -> bytes:
    nodes = {uid: f"n{uid:04d}" for uid in uids}
    parts = [part async for part in export(series, kind, "power", nodes, BEGIN, BEGIN + 300, step=step)]
    return b"".join(parts)


async def test_csv_has_a_line_for_each_sample(series: Series) -> None:
    rows = list(csv.DictReader(io.StringIO((await whole(series, "csv", [3, 4, 99])).decode())))
    assert len(rows) == 401
    assert rows[0] == {"time": "2023-11-14T22:00:00.000000Z", "node": "n0003", "power (W)": "100.375"}
    assert rows[-1] == {"time": "2023-11-14T22:03:20.250000Z", "node": "n0003", "power (W)": "500"}


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 20])
@pytest.mark.parametrize("at_once", [10, 1_000_000])
async def test_parquet_reads_back_what_was_measured(
    series: Series, monkeypatch: pytest.MonkeyPatch, nodes: int, at_once: int
) -> None:
    monkeypatch.setattr(exporting, "AT_ONCE", at_once)
    data = await whole(series, "parquet", list(range(3, 3 + nodes)))
    table = pq.read_table(io.BytesIO(data))
    shown = min(nodes, 18)
    assert table.num_rows == 200 * shown + 1
    assert [str(kind) for kind in table.schema.types] == ["timestamp[us, tz=UTC]", "string", "double"]
    columns = table.to_pydict()
    assert set(columns["node"]) == {f"n{uid:04d}" for uid in range(3, 3 + shown)}
    assert columns["time"][0].timestamp() == BEGIN
    assert (columns["time"][-1].timestamp(), columns["node"][-1], columns["value"][-1]) == (
        BEGIN + 200.25,
        "n0003",
        500,
    )
    for node, value in zip(columns["node"][:-1], columns["value"][:-1], strict=True):
        assert value == 100 + int(node[1:]) / 8


async def test_with_a_step_there_is_a_line_for_each_step(series: Series) -> None:
    table = pq.read_table(io.BytesIO(await whole(series, "parquet", [5], step=60)))
    assert table.num_rows == 4
    assert table.column("value").to_pylist() == pytest.approx([100.625] * 4)


async def test_an_export_of_nothing_is_a_file_with_no_lines(series: Series) -> None:
    assert pq.read_table(io.BytesIO(await whole(series, "parquet", [99]))).num_rows == 0
    assert (await whole(series, "csv", [99])).decode() == "time,node,power (W)\n"


async def test_a_name_that_a_spreadsheet_would_run_is_made_harmless(series: Series) -> None:
    parts = [part async for part in export(series, "csv", "power", {3: '=1+1,"x"'}, BEGIN, BEGIN + 1)]
    assert b'"\'=1+1,""x"""' in b"".join(parts)


async def test_a_format_that_is_not_there_is_refused(series: Series) -> None:
    with pytest.raises(BadRequest, match="csv or parquet"):
        await whole(series, "xls", [3])
