"""How rows of samples, and summaries, become bytes.

A chunk is cut into blocks of nodes, so that a question about a few nodes reads little. Samples are whole multiples of
the metric's quantum; what is kept is how they change from second to second (for a counter: how its rise changes). Each
row is as narrow as pays: what does not fit is kept beside it, as exceptions. What is not there is in a bitmap.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import Corrupt
from strata.power.series.downsample import FIELDS, ROW, Matrix
from strata.power.series.records import Floats, Metric

BLOCK = 8192
"""Nodes in a block."""

_KINDS = (None, np.int8, np.int16, np.int32, np.int64)
"""How wide a row may be. None: nothing but exceptions."""
_BYTES = (0, 1, 2, 4, 8)
_EXCEPTION = 10
"""Bytes: where it is, and what."""
_SHORT = 65535
_TIMES = ("first_t", "last_t")


class _Rows(msgspec.Struct, frozen=True, array_like=True):
    rows: int
    nodes: int
    shift: int
    widths: bytes
    data: bytes
    exceptions: bytes
    """How many each row has."""
    places: bytes
    changes: bytes
    missing: bytes


class _Fields(msgspec.Struct, frozen=True, array_like=True):
    nodes: int
    same: dict[str, float]
    short: list[str]
    """Whole multiples of the quantum, in two bytes."""
    narrow: list[str]
    wide: list[str]
    data: bytes


def encode_rows(metric: Metric, values: Floats) -> bytes:
    """``[time, node]`` as bytes. NaN stays NaN, all else comes back to within half a quantum."""
    rows, nodes = values.shape
    missing = np.isnan(values)
    gaps = bool(missing.any())
    whole = _filled(values, missing) if gaps else values
    steps = np.rint(whole.astype(np.float64) / metric.quantum).astype(np.int64)
    ones = int(np.bitwise_or.reduce(steps, axis=None))
    shift = (ones & -ones).bit_length() - 1 if ones else 0
    steps >>= shift
    for _ in range(_order(metric)):
        steps[1:] -= steps[:-1].copy()
    size = np.abs(steps)
    beyond = np.stack([(size > bound).sum(axis=1) for bound in (0, 127, 32767, 2**31 - 1)])
    costs = beyond * _EXCEPTION + np.array(_BYTES[:4])[:, None] * nodes
    widths = np.where(costs.min(axis=0) < 8 * nodes, costs.argmin(axis=0), 4)
    bounds = np.array([0, 127, 32767, 2**31 - 1, 2**63 - 1])[widths]
    data = b"".join(
        row.astype(kind).tobytes() for row, kind in ((steps[i], _KINDS[w]) for i, w in enumerate(widths)) if kind
    )
    odd = size > bounds[:, None]
    _, places = np.nonzero(odd)
    return msgspec.msgpack.encode(
        _Rows(
            rows,
            nodes,
            shift,
            widths.astype(np.uint8).tobytes(),
            data,
            odd.sum(axis=1, dtype=np.uint16).tobytes(),
            places.astype(np.uint16).tobytes(),
            steps[odd].tobytes(),
            zlib.compress(np.packbits(missing).tobytes(), 1) if gaps else b"",
        )
    )


def decode_rows(metric: Metric, blob: bytes, take: npt.NDArray[np.intp]) -> Floats:
    """The columns ``take`` of what was encoded."""
    try:
        head = msgspec.msgpack.decode(blob, type=_Rows)
        found = np.zeros((head.rows, len(take)), np.int64)
        data, place = memoryview(head.data), 0
        for row, width in enumerate(head.widths):
            kind = _KINDS[width]
            if kind is not None:
                found[row] = np.frombuffer(data, kind, head.nodes, place)[take]
                place += head.nodes * _BYTES[width]
        _put_exceptions(head, found, take)
        for _ in range(_order(metric)):
            # Row by row: numpy's own cumulative sum strides through memory.
            for row in range(1, head.rows):
                found[row] += found[row - 1]
        kept = np.float64 if metric.counter else np.float32
        values: Floats = (found * (metric.quantum * (1 << head.shift))).astype(kept)
        if head.missing:
            bits = np.frombuffer(zlib.decompress(head.missing), np.uint8)
            absent = np.unpackbits(bits, count=head.rows * head.nodes).reshape(head.rows, head.nodes)
            values[absent[:, take].astype(bool)] = np.nan
        return values
    except (msgspec.MsgspecError, zlib.error, ValueError, IndexError) as error:
        raise Corrupt(f"samples cannot be decoded: {error}", where="telemetry") from None


def _put_exceptions(head: _Rows, found: npt.NDArray[np.int64], take: npt.NDArray[np.intp]) -> None:
    if not head.places:
        return
    columns = np.full(head.nodes, -1, np.intp)
    columns[take] = np.arange(len(take))
    rows = np.repeat(np.arange(head.rows), np.frombuffer(head.exceptions, np.uint16))
    at = columns[np.frombuffer(head.places, np.uint16)]
    wanted = at >= 0
    found[rows[wanted], at[wanted]] = np.frombuffer(head.changes, np.int64)[wanted]


def encode_summary(metric: Metric, summary: Matrix, origin: float) -> bytes:
    """A block of a summary as bytes; ``origin`` is the start of its chunk."""
    same: dict[str, float] = {}
    groups: dict[type, list[str]] = {np.uint16: [], np.float32: [], np.float64: []}
    parts: dict[type, list[bytes]] = {kind: [] for kind in groups}
    for name in FIELDS:
        field = summary[ROW[name]] - origin if name in _TIMES else summary[ROW[name]]
        if field.min() == field.max() and np.isfinite(field[0]):
            same[name] = float(field[0])
            continue
        kind: type = np.float32
        if name in ("first_v", "last_v", "low", "high", "step"):
            units = field / metric.quantum
            if units.min() >= 0 and units.max() <= _SHORT and (units == np.rint(units)).all():
                kind, field = np.uint16, units
            elif name in ("first_v", "last_v", "step"):
                kind = np.float64
        groups[kind].append(name)
        parts[kind].append(field.astype(kind).tobytes())
    order = (np.float64, np.float32, np.uint16)
    data = b"".join(part for kind in order for part in parts[kind])
    short, narrow, wide = groups.values()
    return msgspec.msgpack.encode(_Fields(summary.shape[1], same, short, narrow, wide, data))


def decode_summary(metric: Metric, blob: bytes, origin: float, take: npt.NDArray[np.intp]) -> Matrix:
    """The columns ``take`` of a block of a summary."""
    try:
        head = msgspec.msgpack.decode(blob, type=_Fields)
        found = np.zeros((len(FIELDS), len(take)))  # what an older version did not keep is 0
        for name, value in head.same.items():
            found[ROW[name]] = value
        place = 0
        for names, kind in ((head.wide, np.float64), (head.narrow, np.float32), (head.short, np.uint16)):
            if names:
                fields = np.frombuffer(head.data, kind, len(names) * head.nodes, place).reshape(-1, head.nodes)
                found[[ROW[name] for name in names]] = np.take(fields, take, axis=1)
                place += fields.nbytes
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise Corrupt(f"a summary cannot be decoded: {error}", where="telemetry") from None
    if head.short:
        found[[ROW[name] for name in head.short]] *= metric.quantum
    for name in _TIMES:
        found[ROW[name]] += origin
    return found


def _order(metric: Metric) -> int:
    """How often the change is taken: a counter rises steadily, so that its rise changes little."""
    return 2 if metric.counter else 1


def _filled(values: Floats, missing: npt.NDArray[np.bool_]) -> Floats:
    """With a neighbour's value in place of what is missing, so that there is no change to keep."""
    filled = values.copy()
    for row in range(1, len(filled)):
        np.copyto(filled[row], filled[row - 1], where=missing[row])
    for row in range(len(filled) - 2, -1, -1):
        np.copyto(filled[row], filled[row + 1], where=np.isnan(filled[row]))
    return np.nan_to_num(filled, copy=False, nan=0.0)
