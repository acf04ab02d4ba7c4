"""What an ELF file says of itself: its machine, the libraries that it needs, its interpreter, a section's bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

X86_64 = 62
AARCH64 = 183

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED = struct.Struct("<HHIII")
_VERSION = struct.Struct("<IHHII")
_DYNAMIC = 6
_STRINGS = 3
_NEEDED = 1


class Elf(NamedTuple):
    """A 64-bit little-endian file."""

    machine: int
    needed: tuple[str, ...]
    interpreter: str
    sections: dict[str, bytes]


def read(data: bytes, sections: tuple[str, ...] = ()) -> Elf | None:
    """What ``data`` says, with the bytes of the named sections; None if it is no such file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _read(data, sections)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def imports(data: bytes, library: str) -> dict[str, str]:
    """The functions that a program takes from ``library``, with the version of each, as far as it names versions."""
    parts = (".dynsym", ".dynstr", ".gnu.version", ".gnu.version_r")
    found = read(data, parts)
    symbols, strings, numbers, needs = (found.sections.get(part, b"") if found else b"" for part in parts)
    versions: dict[int, str] = {}
    at = 0
    while needs:
        _, count, file, auxiliary, following = _NEED.unpack_from(needs, at)
        row = at + auxiliary
        for _ in range(count if _string(strings, file) == library else 0):
            _, _, number, name, step = _VERSION.unpack_from(needs, row)
            versions[number] = _string(strings, name)
            row += step
        if not following:
            break
        at += following
    named = zip(_SYMBOL.iter_unpack(symbols), struct.iter_unpack("<H", numbers), strict=False)
    return {_string(strings, symbol[0]): versions[number] for symbol, (number,) in named if number in versions}


def _read(data: bytes, wanted: tuple[str, ...]) -> Elf:
    (_, machine, _, _, _, table, _, _, _, _, size, count, names_at) = _HEADER.unpack_from(data)
    rows = [_SECTION.unpack_from(data, table + size * index) for index in range(count)]

    def body(row: tuple[int, ...]) -> bytes:
        return data[row[4] : row[4] + row[5]]

    names = body(rows[names_at]) if rows else b""
    found: dict[str, bytes] = {}
    needed: list[str] = []
    for row in rows:
        name = _string(names, row[0])
        if name in wanted or name == ".interp":
            found[name] = body(row)
        if row[1] == _DYNAMIC and rows[row[6]][1] == _STRINGS:
            strings = body(rows[row[6]])
            needed += [_string(strings, value) for tag, value in struct.iter_unpack("<qQ", body(row)) if tag == _NEEDED]
    interpreter = found.pop(".interp", b"").rstrip(b"\0").decode()
    return Elf(machine, tuple(needed), interpreter, found)


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
