"""A SQLite file beside the store is opened and used by several threads at once, and none of them fails for it."""

import threading
from pathlib import Path

import apsw
import pytest

from strata.store.side_file import connect

SCHEMA = "CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY)"


@pytest.mark.slow
def test_a_file_is_opened_while_another_connection_writes(tmp_path: Path) -> None:
    path = tmp_path / "side.db"
    writer = connect(path, SCHEMA, 1)
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not done.is_set():
            writer.execute("INSERT INTO t VALUES (NULL)")
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(300):
            connect(path, SCHEMA, 1).close()
    finally:
        done.set()
        thread.join()
    assert writer.execute("SELECT count(*) FROM t").get == written > 0
    writer.close()


def test_a_transaction_that_reads_first_waits_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "side.db"
    one, other = connect(path, SCHEMA, 1), connect(path, SCHEMA, 1)
    other.set_busy_timeout(0)
    with one:
        assert one.execute("SELECT count(*) FROM t").get == 0
        with pytest.raises(apsw.BusyError):  # at once here, after ten seconds in the product
            other.execute("INSERT INTO t VALUES (1)")
        one.execute("INSERT INTO t VALUES (2)")
    other.execute("INSERT INTO t VALUES (1)")
    assert one.execute("SELECT n FROM t ORDER BY n").fetchall() == [(1,), (2,)]
    one.close()
    other.close()
