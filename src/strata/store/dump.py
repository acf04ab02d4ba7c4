"""The backup file: one format for every store, so that what one wrote any other can read.

A line of text that says what the file is, the entries as length-prefixed MessagePack, and a line with the SHA-256 of
all before it. Keys under a lease are left out: they say who was alive, which a restored store must not claim.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from strata.core.errors import BadRequest, Corrupt, Unavailable
from strata.store.protocol import Entry

MAGIC = b"strata-backup 1 "
_LENGTH = struct.Struct(">I")
_DIGEST = struct.Struct(">64s")


class DumpHeader(msgspec.Struct, frozen=True):
    """The first line."""

    revision: int


def write_dump(path: Path, revision: int, entries: Iterable[Entry]) -> int:
    """Write ``entries`` as they were at ``revision``; return how many. The file appears whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    encode = msgspec.msgpack.Encoder().encode
    count = 0
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            out = _Hashing(file)
            out.write(MAGIC + msgspec.json.encode(DumpHeader(revision)) + b"\n")
            for entry in entries:
                record = encode((entry.key, entry.value, entry.created, entry.modified))
                out.write(_LENGTH.pack(len(record)) + record)
                count += 1
            out.write(_LENGTH.pack(0))
            file.write(out.hexdigest())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Unavailable(
            f"cannot write the backup: {error.strerror}", where=str(path), hint="free space or choose another place"
        ) from error
    return count


def read_header(path: Path) -> DumpHeader:
    """What the file says that it holds."""
    try:
        with path.open("rb") as file:
            return _read_header(path, file)
    except OSError as error:
        raise BadRequest(f"cannot read the backup: {error.strerror}", where=str(path)) from error


def check_dump(path: Path) -> DumpHeader:
    """Raise ``Corrupt`` unless every byte is as it was written."""
    header = read_header(path)
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = size - 64
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
        if left != 0 or file.read() != digest.hexdigest().encode():
            raise Corrupt(
                "the backup's checksum does not match: it was altered or cut short",
                where=str(path),
                hint="use another backup",
            )
    return header


def read_dump(path: Path) -> Iterator[Entry]:
    """The entries, in key order. Call ``check_dump`` first."""
    decode = msgspec.msgpack.Decoder(tuple[str, bytes, int, int]).decode
    with path.open("rb") as file:
        _read_header(path, file)
        while length := _LENGTH.unpack(file.read(_LENGTH.size))[0]:
            yield Entry(*decode(file.read(length)))


def _read_header(path: Path, file: BinaryIO) -> DumpHeader:
    line = file.readline(4096)
    if not line.startswith(MAGIC):
        raise BadRequest("is not a backup that this version of Strata can read", where=str(path))
    try:
        return msgspec.json.decode(line[len(MAGIC) :], type=DumpHeader)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the backup's first line is damaged: {error}", where=str(path)) from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Hashing:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def hexdigest(self) -> bytes:
        return self._digest.hexdigest().encode()
