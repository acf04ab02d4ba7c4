"""Telemetry in a site's PostgreSQL, which several controllers share.

Each controller writes under a name of its own and holds a lock on it as long as it lives. What a controller that is no
more had not yet put into a chunk is taken over by the next one that starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from strata.core.errors import Corrupt, Refused, Unavailable
from strata.power.series.chunk_store import FORMAT, TABLES, ChunkStore

SCHEMA = "strata_telemetry"

_LOCKS = 0x53545254
"""The first half of our advisory locks' keys."""


PATIENCE = 5.0
"""Seconds to wait for a name: the server may not yet have noticed that the one who had it is gone."""


class PostgresChunkStore(ChunkStore):
    """A connection to the database that ``address`` names (``postgresql://...`` or libpq's ``key=value``)."""

    def __init__(self, address: str, writer: str, *, writes: bool) -> None:
        super().__init__(writer)
        self._address = address
        self._writes = writes
        with _translated():
            self._db = self._connect()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with _translated():
            if self._db.closed:
                self._db = self._connect()
            try:
                with self._db.transaction():
                    yield
            except BaseException:
                self._roster = (0, b"")
                raise

    def journal(self) -> list[tuple[int, bytes]]:
        with self.transaction():
            for (other,) in self._run("SELECT DISTINCT writer FROM journal WHERE writer <> ?", (self.writer,)):
                # The lock lasts until the end of the transaction; a writer that lives has it.
                ((free,),) = self._run("SELECT pg_try_advisory_xact_lock(?, hashtext(?))", (_LOCKS, other))
                if free:
                    self._run("UPDATE journal SET writer = ? WHERE writer = ?", (self.writer, other))
        return super().journal()

    def close(self) -> None:
        self._db.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with _translated():
            cursor = self._db.execute(statement.replace("?", "%s"), values, binary=True)
            return cursor.fetchall() if cursor.description else []

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        db = psycopg.connect(self._address, autocommit=True, application_name="strata telemetry", connect_timeout=10)
        try:
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            if self._writes:
                self._claim(db)
            db.execute(f"SET search_path TO {SCHEMA}")
            if self._writes:
                self._create(db)
        except BaseException:
            db.close()
            raise
        return db

    def _claim(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        db.execute(f"SET lock_timeout TO {round(PATIENCE * 1000)}".encode())
        try:
            db.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (_LOCKS, self.writer))
        except psycopg.errors.LockNotAvailable:
            raise Refused(
                f"another controller writes telemetry as {self.writer!r}",
                by="telemetry",
                where="PostgreSQL",
                hint="give each controller a name of its own",
            ) from None
        db.execute("SET lock_timeout TO DEFAULT")

    def _create(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        with db.transaction():
            # One at a time: two that create the same table at once would fail each other.
            db.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCKS,))
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            for table in TABLES:
                kinds = {"serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "BYTEA"}
                db.execute(table.format(**kinds).encode())
            # What we keep is packed already.
            for table in ("sample", "summary", "journal", "roster"):
                column = "uids" if table == "roster" else "data"
                db.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL".encode())
            db.execute("INSERT INTO meta VALUES ('format', %s) ON CONFLICT DO NOTHING", (FORMAT,))
        row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        if row is None or row[0] != FORMAT:
            raise Corrupt(f"the telemetry in schema {SCHEMA} is not of format {FORMAT}", where="PostgreSQL")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        # The first line says what is wrong; what follows may hold parts of the address.
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise Unavailable(f"the telemetry cannot be used now: {reason}", where="PostgreSQL") from None
