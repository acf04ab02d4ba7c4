"""Writes Parquet: as much of the format as a table of times, names and numbers needs.

The usual library for it is larger than all of Strata. Each group of rows has its columns in one gzipped page each;
names are numbers into a dictionary page. Nothing is optional, so that there are no levels.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAGIC = b"PAR1"

# The format's own numbers.
_INT64, _DOUBLE, _BYTES = 2, 5, 6
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_UTF8, _MICROSECONDS = 0, 10
_GZIP = 2
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2

# Thrift's compact protocol: what a field may be.
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


class _Column(NamedTuple):
    name: str
    kind: int
    meaning: int | None


_COLUMNS = (_Column("time", _INT64, _MICROSECONDS), _Column("node", _BYTES, _UTF8), _Column("value", _DOUBLE, None))


class ParquetWriter:
    """A file with the columns time (UTC), node and value, in pieces: ``rows`` for each group, then ``end``."""

    def __init__(self) -> None:
        self._at = 0
        self._rows = 0
        self._groups: list[bytes] = []

    def rows(
        self,
        times: npt.NDArray[np.float64],
        names: Sequence[str],
        nodes: npt.NDArray[np.intp],
        values: npt.NDArray[np.float64],
    ) -> bytes:
        """One group of rows; ``nodes`` are places in ``names``."""
        start = self._at
        self._piece = [MAGIC] if not self._at else []
        self._at += 4 if not self._at else 0
        stamps = np.rint(times * 1e6).astype("<i8").tobytes()
        width = max(1, (len(names) - 1).bit_length())
        words = b"".join(len(word).to_bytes(4, "little") + word for word in (name.encode() for name in names))
        chunks = [
            self._chunk(_COLUMNS[0], len(times), stamps, None, 0),
            self._chunk(_COLUMNS[1], len(times), bytes([width]) + _packed(nodes, width), words, len(names)),
            self._chunk(_COLUMNS[2], len(times), values.astype("<f8").tobytes(), None, 0),
        ]
        self._rows += len(times)
        size = self._at - start
        self._groups.append(_struct((1, _LIST, _list(_STRUCT, chunks)), (2, _I64, size), (3, _I64, len(times))))
        return b"".join(self._piece)

    def end(self) -> bytes:
        schema = [_struct((4, _BINARY, "samples"), (5, _I32, len(_COLUMNS)))]
        for column in _COLUMNS:
            fields: list[tuple[int, int, object]] = [(1, _I32, column.kind), (3, _I32, 0), (4, _BINARY, column.name)]
            if column.meaning is not None:
                fields.append((6, _I32, column.meaning))
            schema.append(_struct(*fields))
        footer = _struct(
            (1, _I32, 1),
            (2, _LIST, _list(_STRUCT, schema)),
            (3, _I64, self._rows),
            (4, _LIST, _list(_STRUCT, self._groups)),
            (6, _BINARY, "strata"),
        )
        return (b"" if self._at else MAGIC) + footer + len(footer).to_bytes(4, "little") + MAGIC

    def _chunk(self, column: _Column, rows: int, data: bytes, words: bytes | None, distinct: int) -> bytes:
        """Write a column's pages; what the footer says of them."""
        first, plain = self._at, 0
        if words is not None:
            about = _struct((1, _I32, distinct), (2, _I32, _PLAIN))
            plain += self._page(_DICTIONARY_PAGE, words, (7, _STRUCT, about))
        page, encoding = self._at, _PLAIN if words is None else _RLE_DICTIONARY
        about = _struct((1, _I32, rows), (2, _I32, encoding), (3, _I32, _RLE), (4, _I32, _RLE))
        plain += self._page(_DATA_PAGE, data, (5, _STRUCT, about))
        fields: list[tuple[int, int, object]] = [
            (1, _I32, column.kind),
            (2, _LIST, _list(_I32, [_number(each) for each in sorted({_PLAIN, _RLE, encoding})])),
            (3, _LIST, _list(_BINARY, [_text(column.name)])),
            (4, _I32, _GZIP),
            (5, _I64, rows),
            (6, _I64, plain),
            (7, _I64, self._at - first),
            (9, _I64, page),
        ]
        if words is not None:
            fields.append((11, _I64, first))
        return _struct((2, _I64, first), (3, _STRUCT, _struct(*fields)))

    def _page(self, kind: int, data: bytes, about: tuple[int, int, object]) -> int:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        packed = packer.compress(data) + packer.flush()
        head = _struct((1, _I32, kind), (2, _I32, len(data)), (3, _I32, len(packed)), about)
        self._piece += [head, packed]
        self._at += len(head) + len(packed)
        return len(head) + len(data)


def _packed(numbers: npt.NDArray[np.intp], width: int) -> bytes:
    """Numbers of ``width`` bits each, in groups of eight."""
    groups = -(-len(numbers) // 8)
    whole = np.zeros(groups * 8, np.uint32)
    whole[: len(numbers)] = numbers
    bits = ((whole[:, None] >> np.arange(width, dtype=np.uint32)) & 1).astype(np.uint8)
    return _varint(groups << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()


def _struct(*fields: tuple[int, int, object]) -> bytes:
    """Fields by number, kind and value; lists and structs are encoded already."""
    found, last = bytearray(), 0
    for number, kind, value in fields:
        found.append((number - last) << 4 | kind)
        last = number
        if isinstance(value, bytes):
            found += value
        elif isinstance(value, str):
            found += _text(value)
        else:
            assert isinstance(value, int)
            found += _number(value)
    return bytes(found) + b"\0"


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def _text(value: str) -> bytes:
    data = value.encode()
    return _varint(len(data)) + data


def _number(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
