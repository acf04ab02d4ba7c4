"""A stand-in for a library that a program is linked with and never uses here: every function answers "not supported".

Without it the program would not start; with the library itself come others that are larger than the program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from strata.provisioning.minos import elf

# Each returns -ENOSYS: "mov $-38, %rax; ret", and "mov x0, #-38; ret".
_CODE = {elf.X86_64: b"\x48\xc7\xc0\xda\xff\xff\xff\xc3", elf.AARCH64: struct.pack("<II", 0x928004A0, 0xD65F03C0)}
_PAGE = 0x10000
"""The largest that either architecture has: code and what the loader writes to are never on the same one."""

_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _WRITE, _EXECUTE = 4, 2, 1
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE, _NAME = 4, 5, 6, 10, 11, 14
_VERSIONS, _DEFINED, _DEFINED_COUNT = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_HEADERS = 64 + 4 * 56
_FUNCTION = 0x12
_INSIDE = 1
"""Section of each function. There are no sections; it only says that they are defined."""


def library(name: str, machine: int, functions: Mapping[str, str]) -> bytes:
    """A shared library of that name with these functions, each with the version that is asked for ("": none)."""
    strings = _Strings()
    soname = strings.add(name)
    versions = sorted({version for version in functions.values() if version})
    names = sorted(functions)
    # 1 is the library itself, and what has no version.
    index = {version: number for number, version in enumerate(versions, 2)} | {"": 1}
    defined = _definitions([name, *versions], strings)
    at = [strings.add(function) for function in names]
    sizes = (len(_CODE[machine]), 24 * (len(names) + 1), 4 * (len(names) + 4), 2 * (len(names) + 1), len(defined))
    code, symbols, chains, versioned, definitions, text = _offsets(_HEADERS, sizes)
    body = (
        _CODE[machine],
        bytes(24) + b"".join(struct.pack("<IBBHQQ", one, _FUNCTION, 0, _INSIDE, code, sizes[0]) for one in at),
        # One bucket with all of them in a row.
        struct.pack(f"<{len(names) + 4}I", 1, len(names) + 1, 1 if names else 0, 0, *range(2, len(names) + 1), 0),
        struct.pack(f"<{len(names) + 1}H", 0, *(index[functions[function]] for function in names)),
        defined,
        strings.data,
    )
    start = b"".join(part.ljust(-(-len(part) // 8) * 8, b"\0") for part in body)
    dynamic = b"".join(
        struct.pack("<qQ", *row)
        for row in (
            *((_NAME, soname), (_HASH, chains), (_STRINGS, text), (_STRINGS_SIZE, len(strings.data))),
            *((_SYMBOLS, symbols), (_SYMBOL_SIZE, 24), (_VERSIONS, versioned)),
            *((_DEFINED, definitions), (_DEFINED_COUNT, len(versions) + 1), (0, 0)),
        )
    )
    end = _HEADERS + len(start)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segments = (
        (_LOAD, _READ | _EXECUTE, 0, 0, end, _PAGE),
        (_LOAD, _READ | _WRITE, end, _PAGE + end, len(dynamic), _PAGE),
        (_DYNAMIC, _READ | _WRITE, end, _PAGE + end, len(dynamic), 8),
        (_STACK, _READ | _WRITE, 0, 0, 0, 16),
    )
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
        for kind, flags, offset, address, size, align in segments
    )
    return header + table + start + dynamic


class _Strings:
    """A table of strings, each found by its offset."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text) - 1


def _definitions(names: list[str], strings: _Strings) -> bytes:
    """The versions that the library has; the first is its own name."""
    rows = []
    for number, name in enumerate(names, 1):
        following = 28 if number < len(names) else 0
        row = struct.pack("<HHHHIII", 1, 1 if number == 1 else 0, number, 1, _hash(name), 20, following)
        rows.append(row + struct.pack("<II", strings.add(name), 0))
    return b"".join(rows)


def _hash(name: str) -> int:
    """The hash that the ELF standard prescribes."""
    total = 0
    for byte in name.encode():
        total = (total << 4) + byte
        top = total & 0xF0000000
        total = (total ^ (top >> 24)) & ~top
    return total


def _offsets(start: int, sizes: tuple[int, ...]) -> list[int]:
    """Where parts of these sizes begin, each at a multiple of 8, and where they end."""
    found = [start]
    for size in sizes:
        found.append(found[-1] + -(-size // 8) * 8)
    return found
