"""A SQLite file beside the store: an index or a log that one process keeps for itself, used from a thread of its own.

What is in it can be rebuilt or be done without, so a commit need not wait for the disk; the write-ahead log keeps the
file whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import apsw


def connect(path: Path, schema: str, version: int, *, pragmas: str = "") -> apsw.Connection:
    """Open the file at ``path`` (0600), new if need be; ``apsw.CorruptError`` if it has another ``version``."""
    with suppress(OSError):  # if it cannot be there, SQLite says so
        path.touch(mode=0o600)
        path.chmod(0o600)
    db = apsw.Connection(str(path))
    db.set_busy_timeout(10_000)
    # A transaction that reads before it writes would fail at once, not wait, where another connection wrote in between.
    db.transaction_mode = "IMMEDIATE"
    db.execute(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {pragmas}")
    found = db.execute("PRAGMA user_version").get
    if found not in (0, version):
        raise apsw.CorruptError(f"format {found}, not {version}")
    with db:
        db.execute(schema)
        if found != version:
            db.execute(f"PRAGMA user_version={version}")
    return db


class Closes(Protocol):
    """What is in the file, as somebody uses it."""

    def close(self) -> None:
        """Let go of the file."""
        ...


F = TypeVar("F", bound=Closes)
T = TypeVar("T")


class FileThread(Generic[F]):
    """A thread with a connection of its own, opened when it is first needed."""

    def __init__(self, name: str, open_: Callable[[], F]) -> None:
        self._open = open_
        self._file: F | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[F], T]) -> T:
        """Do ``work`` in the thread. SQLite's errors are the caller's to judge."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        """Close the file, end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _do(self, work: Callable[[F], T]) -> T:
        if self._file is None:
            self._file = self._open()
        return work(self._file)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
