"""Looks at every stored byte of a SQLite store and says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from strata.core.errors import StrataError
from strata.store.sqlite import engine
from strata.store.sqlite.file import SHIFT, change_crc, entry_crc

MOST = 100
"""Findings after which looking on tells nothing new."""


def check_file(db: apsw.Connection, path: Path) -> list[str]:
    """What is wrong with the store, in words; empty when it is sound."""
    found: list[str] = []
    try:
        found += [f"{path}: {row[0]}" for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        with engine.reading(db):
            for finding in _findings(db):
                found.append(finding)
                if len(found) >= MOST:
                    break
    except (apsw.Error, StrataError) as error:
        found.append(f"{path}: cannot be read through: {error}")
    return found


def _findings(db: apsw.Connection) -> Iterator[str]:
    newest, gone, swept = engine.read_state(db)
    if not swept <= gone <= newest:
        yield f"state: revisions out of order: {swept}, {gone}, {newest}"
    for row_id, key, created, lease, previous, crc, value in db.execute(
        "SELECT id, key, created, lease, previous, crc, value FROM change ORDER BY id"
    ):
        if crc != change_crc(row_id, key, created, lease, previous, value):
            yield f"change {row_id}: checksum does not match"
        elif row_id >> SHIFT > newest:
            yield f"change {row_id}: is newer than the newest revision, {newest}"
    for key, row_id, created, lease, crc, its_key in db.execute(
        "SELECT e.key, e.id, e.created, e.lease, e.crc, c.key FROM entry e LEFT JOIN change c ON c.id = e.id"
    ):
        if crc != entry_crc(key, row_id, created, lease):
            yield f"entry {key}: checksum does not match"
        elif its_key != key:
            yield f"entry {key}: its value is missing"
    for (key,) in db.execute(
        "SELECT l.key FROM leased l LEFT JOIN entry e ON e.key = l.key AND e.lease = l.lease WHERE e.key IS NULL"
    ):
        yield f"lease of {key}: the key is not there"
