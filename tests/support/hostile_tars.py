"""Tars that no program writes: headers field by field."""

from __future__ import annotations

import io
import tarfile

END = bytes(1024)


def header(name: str, kind: bytes = b"0", *, size: bytes | int = 0) -> bytes:
    """One block with the right sum. ``size``: the field's bytes as they are, or a number."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)[:512])
    block[156:157] = kind
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    return summed(block)


def summed(block: bytearray) -> bytes:
    """With the sum that belongs to it."""
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def number(value: int, width: int = 12) -> bytes:
    """A field in base 256, as GNU tar writes what has no room in octal digits."""
    return (b"\xff" if value < 0 else b"\x80") + (value % (1 << 8 * (width - 1))).to_bytes(width - 1, "big")


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(*records: tuple[str, str], kind: bytes = b"x") -> bytes:
    """A pax header and what stands in it."""
    body = io.BytesIO()
    for key, value in records:
        rest = f" {key}={value}\n".encode()
        length = len(rest)
        while length != len(rest) + len(str(length)):
            length = len(rest) + len(str(length))
        body.write(str(length).encode() + rest)
    return header("pax", kind, size=len(body.getvalue())) + padded(body.getvalue())


def sparse(name: str, real: int, pieces: list[tuple[int, bytes]]) -> bytes:
    """A sparse file as GNU tar has written it since 1990."""
    fields = b"".join(number(at) + number(len(data)) for at, data in pieces).ljust(96, b"\0")
    stored = b"".join(data for _, data in pieces)
    block = bytearray(header(name, b"S", size=len(stored)))
    block[257:265] = b"ustar  \0"
    block[386:482] = fields
    block[483:495] = number(real)
    return summed(block) + padded(stored)
