"""Samples as files that other programs read: CSV and Parquet, in pieces, however much it is."""

from __future__ import annotations

import asyncio
import math
import time as clock
from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np

from strata.core.errors import BadRequest
from strata.power.series.records import Uids, Window, metric_named
from strata.power.series.series import Series
from strata.power.telemetry.parquet import ParquetWriter

AT_ONCE = 1_000_000
"""Samples that are in memory together."""


async def export(
    series: Series, kind: str, metric: str, nodes: Mapping[int, str], start: float, end: float, *, step: float = 0
) -> AsyncIterator[bytes]:
    """A file with a line for each sample: time (UTC), node, value. What is not known has no line. ``nodes`` are those
    to export: their names, by uid."""
    if kind not in ("csv", "parquet"):
        raise BadRequest(f"{kind!r} is no format", where="format", hint="csv or parquet")
    unit = metric_named(metric).unit
    uids = np.array(sorted(nodes), np.int64)
    names = [nodes[int(uid)] for uid in uids]
    windows = _slices(series, metric, uids, start, end, step)
    if kind == "csv":
        yield f"time,node,{metric} ({unit})\n".encode()
        cells = [_cell(name) for name in names]
        async for window in windows:
            yield await asyncio.to_thread(_lines, window, cells)
        return
    writer = ParquetWriter()
    async for window in windows:
        yield await asyncio.to_thread(_group, writer, window, names)
    yield writer.end()


async def _slices(
    series: Series, metric: str, uids: Uids, start: float, end: float, step: float
) -> AsyncIterator[Window]:
    """The time in parts of a bounded number of samples; each begins where a step does."""
    span = max(step, 1.0)
    length = max(1, AT_ONCE // max(1, len(uids))) * span
    begin = start
    while begin < end:
        stop = min(end, (math.floor(begin / length) + 1) * length)
        yield await series.window(metric, uids, begin, stop, step=step)
        begin = stop


def _group(writer: ParquetWriter, window: Window, names: Sequence[str]) -> bytes:
    rows, columns = np.nonzero(~np.isnan(window.values))
    if not len(rows):
        return b""
    return writer.rows(window.times[rows], names, columns, window.values[rows, columns].astype(np.float64))


def _lines(window: Window, cells: Sequence[str]) -> bytes:
    found: list[str] = []
    for when, row in zip(window.times, window.values, strict=True):
        stamp = _stamp(float(when))
        found += [f"{stamp},{cells[at]},{row[at]:.10g}\n" for at in np.flatnonzero(~np.isnan(row)).tolist()]
    return "".join(found).encode()


def _stamp(when: float) -> str:
    micros = round(when * 1e6)
    text = clock.strftime("%Y-%m-%dT%H:%M:%S", clock.gmtime(micros // 1_000_000))
    return f"{text}.{micros % 1_000_000:06d}Z"


def _cell(name: str) -> str:
    """A name that no spreadsheet takes for a formula or for several cells."""
    if name.startswith(("=", "+", "-", "@")):
        name = "'" + name
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"\r\n') else name
