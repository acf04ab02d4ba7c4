"""Telemetry in one file, for one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from strata.core.errors import Corrupt, Refused, Unavailable
from strata.power.series.chunk_store import FORMAT, TABLES, ChunkStore

_PAGE = 16384
"""Blocks are tens of kilobytes: pages of some keep their chains short, and their last ones well filled."""


class SqliteChunkStore(ChunkStore):
    """A connection to the file ``path``; the one that writes makes it, and keeps other processes from writing."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        super().__init__("")
        self._path = path
        self._lock = _locked(path) if writes else -1
        try:
            with self._translated():
                self._db = self._connect(writes)
        except BaseException:
            self._unlock()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated():
            self._db.execute("BEGIN")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                # A roster that was written within is gone again.
                self._roster = (0, b"")
                raise

    def close(self) -> None:
        self._db.close()
        self._unlock()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._translated():
            return self._db.execute(statement, values).fetchall()

    def _connect(self, writes: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writes else 0)
        if writes:
            # Nobody else's business, as all of the state; what SQLite makes beside it has the same mode.
            with contextlib.suppress(OSError):  # if it cannot be there, SQLite says so
                self._path.touch(mode=0o600)
                self._path.chmod(0o600)
        db = apsw.Connection(str(self._path), flags=flags)
        try:
            db.set_busy_timeout(10_000)
            db.pragma("page_size", _PAGE)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "full")
            db.pragma("cache_size", -8192)
            db.pragma("journal_size_limit", 64 << 20)
            if writes:
                self._create(db)
        except BaseException:
            db.close()
            raise
        return db

    def _create(self, db: apsw.Connection) -> None:
        with db:
            for table in TABLES:
                db.execute(table.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT", bytes="BLOB"))
            db.execute("INSERT INTO meta VALUES ('format', ?) ON CONFLICT DO NOTHING", (FORMAT,))
        ((found,),) = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
        if found != FORMAT:
            raise Corrupt(f"the telemetry is of format {found}, not {FORMAT}", where=str(self._path))

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.CorruptError, apsw.NotADBError) as error:
            hint = "move the file away: telemetry begins anew without it"
            raise Corrupt(f"the telemetry is damaged: {error}", where=str(self._path), hint=hint) from None
        except apsw.Error as error:
            raise Unavailable(f"the telemetry cannot be used now: {error}", where=str(self._path)) from None


def _locked(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        raise Refused(
            "another process writes this telemetry", by="telemetry", where=str(path), hint="stop it, or use PostgreSQL"
        ) from None
    return found
