"""The SQLite file: opening it safely, its tables, its checks, and what its errors mean.

Three things guard stored bytes. Every page of the file carries a checksum (SQLite's own cksumvfs). Every row carries
one too, which also covers pages that are still in the write-ahead log. And a small file beside it remembers
the newest acknowledged revision, so that a log whose end was lost is noticed rather than believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from strata.core.errors import Corrupt, StrataError, Unavailable

APPLICATION_ID = 0x53545241  # "STRA"
FORMAT = 1
RESERVED_BYTES = 8  # what cksumvfs needs at the end of each page
BUSY_MS = 10_000

SHIFT = 20
"""A change's id is its revision times 2**SHIFT plus its place in the transaction."""

SCHEMA = """
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER, compacted INTEGER, swept INTEGER,
                    crc INTEGER, scrubs INTEGER);
CREATE TABLE change (id INTEGER PRIMARY KEY, key TEXT, created INTEGER, lease INTEGER, previous INTEGER, crc INTEGER,
                     value BLOB);
CREATE TABLE entry (key TEXT PRIMARY KEY, id INTEGER, created INTEGER, lease INTEGER, crc INTEGER) WITHOUT ROWID;
CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl REAL, deadline REAL);
CREATE TABLE leased (lease INTEGER, key TEXT, PRIMARY KEY (lease, key)) WITHOUT ROWID;
"""

_IOERR_DATA = 0x200A  # SQLITE_IOERR_DATA: a page's checksum did not match
_IOERR_CORRUPTFS = 0x210A
_IOERR_SHORT_READ = 0x020A
_MARK = struct.Struct(">QI")
_vfs_lock = threading.Lock()
_vfs_holder: list[apsw.Connection] = []


def checksum_vfs() -> str:
    """The name of the VFS that adds and verifies page checksums, loaded on first use."""
    with _vfs_lock:
        if not _vfs_holder:
            holder = apsw.Connection(":memory:")
            try:
                # Not every build has it, and each that lacks it fails in its own way.
                from apsw import sqlite_extra

                sqlite_extra.load(holder, "cksumvfs")
            except Exception as error:
                raise Unavailable(
                    "this build of apsw lacks SQLite's cksumvfs, without which a damaged page could go unnoticed",
                    hint="pip install 'apsw>=3.51' (the wheel from PyPI has it)",
                ) from error
            _vfs_holder.append(holder)
    return "cksmvfs"


def connect(path: Path, vfs: str, *, writable: bool) -> apsw.Connection:
    """A connection with the switches that the store relies on."""
    db = apsw.Connection(str(path), vfs=vfs, statementcachesize=64)
    db.set_busy_timeout(BUSY_MS)
    db.pragma("synchronous", "full" if writable else "off")
    db.pragma("cache_size", -32768 if writable else -16384)
    db.pragma("temp_store", "memory")
    if not writable:
        db.pragma("query_only", True)
    return db


def create_or_check(path: Path, vfs: str) -> apsw.Connection:
    """Open ``path`` for writing, making it if it is not there; refuse a file that is not ours or is damaged."""
    fresh = not path.exists() or path.stat().st_size == 0
    if not fresh:
        _check_header(path)
    with translated(path):
        # SQLite gives its log the mode of the file, so that one must be right from the beginning.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        db = connect(path, vfs, writable=True)
        try:
            if fresh:
                db.reserve_bytes(reserve=RESERVED_BYTES)
                db.pragma("page_size", 4096)
            db.pragma("journal_mode", "wal")
            db.pragma("journal_size_limit", 64 << 20)
            _create(db) if not db.pragma("application_id") else _check_format(db, path)
        except BaseException:
            db.close()
            raise
    return db


def _create(db: apsw.Connection) -> None:
    db.transaction_mode = "IMMEDIATE"  # what is read here must still be true when it is written
    with db:
        if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").get:
            return  # another process was faster
        db.execute(SCHEMA)
        db.execute("INSERT INTO state VALUES (1, 1, 0, 0, ?, 0)", (state_crc(1, 0, 0),))
        db.pragma("user_version", FORMAT)
        db.pragma("application_id", APPLICATION_ID)


def _check_format(db: apsw.Connection, path: Path) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise Unavailable("is a SQLite database of another program", where=str(path), hint="choose another path")
    if (found := db.pragma("user_version")) != FORMAT:
        raise Unavailable(f"has format {found}; this version of Strata reads {FORMAT}", where=str(path))


def _check_header(path: Path) -> None:
    """Look at the first bytes and the length: cheap, and it catches a truncated or foreign file before SQLite does."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or header[:16] != b"SQLite format 3\0" or header[20] != RESERVED_BYTES:
        raise _damaged(path, "its header is not that of a Strata store")
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    counters_agree = header[24:28] == header[92:96]
    if page_size < 512 or size % page_size or (counters_agree and pages * page_size > size):
        raise _damaged(path, f"it is {size} bytes long and should be {pages * page_size}")


def _damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(f"the file is damaged: {what}", where=str(path), hint="restore it from a backup")


def set_aside(path: Path) -> int:
    """Rename a damaged store's files, for a restore in its place; return the revision that it had acknowledged."""
    mark = Mark(path)
    promised = mark.read()
    mark.close()
    for suffix in ("", "-wal", "-shm", "-mark"):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(path.with_name(f"{path.name}.damaged{suffix}"))
    return promised


class Mark:
    """The newest acknowledged revision, in a file of its own that is overwritten in place.

    It is not synced: it outlives the process, not the machine. After a power cut it may be behind, which is harmless.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path.with_name(path.name + "-mark"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """The revision, or 0 when nothing usable was written yet."""
        data = os.pread(self._file, _MARK.size, 0)
        if len(data) != _MARK.size:
            return 0
        revision, crc = _MARK.unpack(data)
        return int(revision) if zlib.crc32(data[:8]) == crc else 0

    def write(self, revision: int) -> None:
        """Remember ``revision``. Losing it costs a check, not data, so a full disk is no error."""
        data = revision.to_bytes(8, "big")
        with contextlib.suppress(OSError):
            os.pwrite(self._file, data + zlib.crc32(data).to_bytes(4, "big"), 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


class Presence:
    """A lock beside the store's file, held by everybody who has it open."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.first = self.alone()
        """True when nobody else had the store open."""

    def alone(self) -> bool:
        """Whether nobody else has the store open; nobody can open it then until ``share``."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.share()
            return False
        return True

    def share(self) -> None:
        """Let others in, after what only the first one does."""
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._file)


def change_crc(row_id: int, key: str, created: int, lease: int, previous: int, value: bytes | None) -> int:
    """Checksum of a row of ``change``."""
    start = zlib.crc32(f"{row_id} {created} {lease} {previous} {value is None} {key}".encode())
    return zlib.crc32(value, start) if value else start


def entry_crc(key: str, row_id: int, created: int, lease: int) -> int:
    """Checksum of a row of ``entry``."""
    return zlib.crc32(f"{row_id} {created} {lease} {key}".encode())


def state_crc(revision: int, compacted: int, swept: int) -> int:
    """Checksum of the row of ``state``."""
    return zlib.crc32(f"{revision} {compacted} {swept}".encode())


def bad_row(table: str, key: str) -> Corrupt:
    """The error for a row whose checksum does not match."""
    return Corrupt(f"a stored row ({table}) failed its checksum and is not served", where=key, hint="restore a backup")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as ours: who is at fault, and what to do about it."""
    try:
        yield
    except StrataError:
        raise
    except apsw.FullError as error:
        raise Unavailable(
            "the disk is full; nothing was written", where=str(path), hint="free space: writing resumes by itself"
        ) from error
    except apsw.Error as error:
        extended = getattr(error, "extendedresult", 0)
        damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
        if damaged or extended in (_IOERR_DATA, _IOERR_CORRUPTFS, _IOERR_SHORT_READ):
            raise _damaged(path, str(error)) from error
        raise Unavailable(f"SQLite: {error}", where=str(path), hint="look at the disk; it is tried again") from error
    except OSError as error:
        raise Unavailable(f"{error.strerror}", where=str(path)) from error
