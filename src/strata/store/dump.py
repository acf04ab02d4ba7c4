"""The backup file: one format for every store, so that what one wrote any other can read.

A line of text that says what the file is, the entries as length-prefixed MessagePack, and a line with the SHA-256 of
all before it. Keys under a lease are left out: they say who was alive, which a restored store must not claim.
"""

from __future__ import annotations

import contextlib
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


class DumpHeader(msgspec.Struct, frozen=True):
    """The first line."""

    revision: int


class DumpWriter:
    """Writes a backup piece by piece; the file appears whole (``finish``) or not at all."""

    def __init__(self, path: Path, revision: int) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._digest = hashlib.sha256()
        self._encode = msgspec.msgpack.Encoder().encode
        with self._explained():
            self._file = os.fdopen(os.open(self._part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb")
            self._write(MAGIC + msgspec.json.encode(DumpHeader(revision)) + b"\n")

    def add(self, entries: Iterable[Entry]) -> None:
        """Append ``entries``; those under a lease are left out."""
        with self._explained():
            for entry in entries:
                if not entry.lease:
                    record = self._encode((entry.key, entry.value, entry.created, entry.modified))
                    self._write(_LENGTH.pack(len(record)) + record)

    def finish(self) -> None:
        """Make the file durable and give it its name."""
        with self._explained():
            self._write(_LENGTH.pack(0))
            self._file.write(self._digest.hexdigest().encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.replace(self._path)
            _sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"cannot write the backup: {error.strerror}",
                where=str(self._path),
                hint="free space or choose another place",
            ) from error


def write_dump(path: Path, revision: int, entries: Iterable[Entry]) -> None:
    """Write all ``entries`` as they were at ``revision``."""
    writer = DumpWriter(path, revision)
    try:
        writer.add(entries)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


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
