"""What an ELF file says of itself: its machine, the libraries that it needs, its interpreter, a section's bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

X86_64 = 62
AARCH64 = 183

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
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
