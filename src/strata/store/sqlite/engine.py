"""What the SQLite store does to its file, one transaction at a time. Synchronous; knows no event loop and no threads.

``change`` is the log of all versions that are kept, in order; ``entry`` points to the newest version of each
key. A change names the version before it, so a past revision is read from the present and the changes since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import apsw

from strata.store.keys import compacted, conflict, end_of, in_future, not_empty
from strata.store.lease import lease_gone, new_lease_id
from strata.store.protocol import Delete, Entry, Event, Op, Page, Put
from strata.store.sqlite.file import SHIFT, bad_row, change_crc, entry_crc, state_crc

LAST = (1 << SHIFT) - 1
_TOP = "\U0010ffff" * 300

_OLD = "SELECT id, created, lease, crc FROM entry WHERE key = ?"
_LOG = "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)"
_UPSERT = (
    "INSERT INTO entry VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET id = excluded.id, "
    "created = excluded.created, lease = excluded.lease, crc = excluded.crc"
)


def read_state(db: apsw.Connection) -> tuple[int, int, int]:
    """(newest revision, compacted revision, revision up to which compacted rows are really gone)."""
    row = db.execute("SELECT revision, compacted, swept, crc FROM state").fetchone()
    if row is None or state_crc(*row[:3]) != row[3]:
        raise bad_row("state", "state")
    return row[0], row[1], row[2]


def read_entry(db: apsw.Connection, key: str) -> Entry | None:
    """One key, as it stands."""
    row = db.execute(
        "SELECT e.key, e.id, e.created, e.lease, e.crc, c.key, c.created, c.lease, c.previous, c.crc, c.value "
        "FROM entry e LEFT JOIN change c ON c.id = e.id WHERE e.key = ?",
        (key,),
    ).fetchone()
    return None if row is None else _verified(row)


def read_range(db: apsw.Connection, prefix: str, after: str, limit: int, revision: int | None) -> Page:
    """Keys under ``prefix`` above ``after``, now or at ``revision``; in one read transaction."""
    with reading(db):
        newest, gone, _ = read_state(db)
        at = newest if revision is None else revision
        if at > newest:
            raise in_future(at, newest)
        if at < gone:
            raise compacted(at, gone)
        bounds = (max(prefix, after), after, end_of(prefix) or _TOP)
        found = _rows_now(db, bounds, limit) if at == newest else _rows_then(db, bounds, limit, at)
    more = bool(limit) and len(found) > limit
    return Page(tuple(found[:limit] if more else found), at, more)


def _rows_now(db: apsw.Connection, bounds: tuple[str, str, str], limit: int) -> list[Entry]:
    rows = db.execute(
        "SELECT e.key, e.id, e.created, e.lease, e.crc, c.key, c.created, c.lease, c.previous, c.crc, c.value "
        "FROM entry e LEFT JOIN change c ON c.id = e.id "
        "WHERE e.key >= ? AND e.key > ? AND e.key < ? ORDER BY e.key LIMIT ?",
        (*bounds, limit + 1 if limit else -1),
    )
    return [_verified(row) for row in rows]


def _rows_then(db: apsw.Connection, bounds: tuple[str, str, str], limit: int, at: int) -> list[Entry]:
    last = at << SHIFT | LAST
    rows = db.execute(
        "WITH later AS (SELECT key, min(id) AS first FROM change "
        "               WHERE id > ?1 AND key >= ?2 AND key > ?3 AND key < ?4 GROUP BY key), "
        "     past AS (SELECT key, id FROM entry WHERE key >= ?2 AND key > ?3 AND key < ?4 AND id <= ?1 "
        "              UNION ALL SELECT l.key, c.previous FROM later l JOIN change c ON c.id = l.first "
        "              WHERE c.previous != 0) "
        "SELECT p.key, p.id, c.created, c.lease, NULL, c.key, c.created, c.lease, c.previous, c.crc, c.value "
        "FROM past p LEFT JOIN change c ON c.id = p.id ORDER BY p.key LIMIT ?5",
        (last, *bounds, limit + 1 if limit else -1),
    )
    return [_verified(row) for row in rows]


def _verified(row: Sequence[object]) -> Entry:
    key, row_id, created, lease, crc, its_key, its_created, its_lease, previous, its_crc, value = row
    sound = (
        (crc is None or crc == entry_crc(key, row_id, created, lease))  # type: ignore[arg-type]
        and its_key == key
        and its_created == created
        and its_lease == lease
        and value is not None
        and its_crc == change_crc(row_id, key, created, lease, previous, value)  # type: ignore[arg-type]
    )
    if not sound:
        raise bad_row("entry", str(key))
    return Entry(key, value, created, row_id >> SHIFT, lease)  # type: ignore[arg-type,operator]


def all_entries(db: apsw.Connection) -> Iterator[Entry]:
    """Every key, in order; inside ``reading``."""
    rows = db.execute(
        "SELECT e.key, e.id, e.created, e.lease, e.crc, c.key, c.created, c.lease, c.previous, c.crc, c.value "
        "FROM entry e LEFT JOIN change c ON c.id = e.id ORDER BY e.key"
    )
    return map(_verified, rows)


def lease_due(db: apsw.Connection, now: float) -> bool:
    """Whether a lease has run out."""
    return bool(db.execute("SELECT 1 FROM lease WHERE deadline <= ? LIMIT 1", (now,)).get)


def next_deadline(db: apsw.Connection) -> float:
    """When the next lease runs out."""
    deadline = db.execute("SELECT min(deadline) FROM lease").get
    return float("inf") if deadline is None else float(deadline)


def read_log(db: apsw.Connection, prefix: str, start: int, limit: int) -> tuple[list[Event], int]:
    """Changes of whole revisions from ``start`` on, about ``limit``; and where to go on."""
    with reading(db):
        newest, gone, _ = read_state(db)
        if start <= gone:
            raise compacted(start, gone + 1)
        rows = db.execute(
            "SELECT id, key, created, lease, previous, crc, value FROM change WHERE id >= ? AND key >= ? AND key < ? "
            "ORDER BY id",
            (start << SHIFT, prefix, end_of(prefix) or _TOP),
        )
        events: list[Event] = []
        for row_id, key, created, lease, previous, crc, value in rows:
            revision = row_id >> SHIFT
            if len(events) >= limit and revision != events[-1].revision:
                rows.close()
                return events, revision
            if crc != change_crc(row_id, key, created, lease, previous, value):
                raise bad_row("change", str(key))
            events.append(Event(revision, key, value))
    return events, newest + 1


class reading:  # noqa: N801 - reads as a statement
    """One read transaction: everything inside sees one revision."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._db.in_transaction:  # SQLite ends it by itself after some errors
            self._db.execute("ROLLBACK")


class Writing:
    """The changes of one SQLite transaction, which may hold many of the store's."""

    def __init__(self, db: apsw.Connection, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock
        self.revision, self.compacted, self._swept = read_state(db)
        self._stored = (self.revision, self.compacted, self._swept)
        self.published: list[tuple[int, list[Event]]] = []

    def txn(self, ops: Sequence[Op], expect: Mapping[str, int]) -> int:
        """Do ``ops`` if every expectation holds. Everything is checked before anything is written."""
        for key, expected in expect.items():
            old = self._old(key)
            modified = old[0] >> SHIFT if old else 0
            if modified != expected:
                raise conflict(key, expected, modified)
        for lease in {op.lease for op in ops if isinstance(op, Put) and op.lease}:
            if not self._alive(lease):
                raise lease_gone(lease)
        self._apply(ops, [self._old(op.key) for op in ops])
        return self.revision

    def grant(self, ttl: float) -> int:
        """A new lease."""
        lease = new_lease_id()
        self._db.execute("INSERT INTO lease VALUES (?, ?, ?)", (lease, ttl, self._clock() + ttl))
        return lease

    def renew(self, lease: int) -> bool:
        """Prolong a lease that has not ended."""
        if not self._alive(lease):
            return False
        self._db.execute("UPDATE lease SET deadline = ? + ttl WHERE id = ?", (self._clock(), lease))
        return True

    def end_lease(self, lease: int) -> None:
        """Delete the lease and its keys, at one revision."""
        keys = [key for (key,) in self._db.execute("SELECT key FROM leased WHERE lease = ? ORDER BY key", (lease,))]
        self._apply([Delete(key) for key in keys], [self._old(key) for key in keys])
        self._db.execute("DELETE FROM lease WHERE id = ?", (lease,))

    def expire(self) -> None:
        """End the leases whose time has come."""
        due: list[tuple[int]] = self._db.execute(
            "SELECT id FROM lease WHERE deadline <= ?", (self._clock(),)
        ).fetchall()  # type: ignore[assignment]
        for (lease,) in due:
            self.end_lease(lease)

    def renew_all(self) -> None:
        """Give every lease its ttl anew: while the store was closed nobody could renew."""
        self._db.execute("UPDATE lease SET deadline = ? + ttl", (self._clock(),))

    def compact(self, revision: int) -> None:
        """Note that nothing before ``revision`` is readable; ``sweep`` removes it."""
        if revision > self.revision:
            raise in_future(revision, self.revision)
        self.compacted = max(self.compacted, revision)

    def sweep(self, limit: int = 5000) -> bool:
        """Remove some of what was compacted; True when there is more to do."""
        cursor = self._db.execute(
            "SELECT id, previous, value IS NULL FROM change WHERE id > ? AND id <= ? ORDER BY id",
            (self._swept << SHIFT | LAST, self.compacted << SHIFT | LAST),
        )
        gone: list[tuple[int]] = []
        seen = last = 0
        more = False
        for row_id, previous, dead in cursor:
            if seen >= limit and row_id >> SHIFT != last:
                more = True
                break
            seen, last = seen + 1, row_id >> SHIFT
            gone += [(previous,)] if previous else []
            gone += [(row_id,)] if dead else []
        cursor.close()
        self._db.executemany("DELETE FROM change WHERE id = ?", gone)
        self._swept = last if more else self.compacted
        return more

    def load(self, entries: Iterable[Entry], above: int, overwrite: bool) -> None:
        """Hold ``entries`` and nothing else, at a revision above ``above``."""
        any_key = self._db.execute("SELECT key FROM entry LIMIT 1").get
        if any_key is not None and not overwrite:
            raise not_empty(str(any_key))
        revision = max(above, self.revision) + 1
        for table in ("change", "entry", "lease", "leased"):
            self._db.execute(f"DELETE FROM {table}")
        places: dict[int, int] = {}
        for e in entries:
            place = places.get(e.modified, 0)
            places[e.modified] = place + 1
            row_id = e.modified << SHIFT | place
            self._db.execute(
                _LOG, (row_id, e.key, e.created, 0, 0, change_crc(row_id, e.key, e.created, 0, 0, e.value), e.value)
            )
            self._db.execute(_UPSERT, (e.key, row_id, e.created, 0, entry_crc(e.key, row_id, e.created, 0)))
        self.revision = self.compacted = self._swept = revision

    def finish(self) -> None:
        """Write what the transaction as a whole changed."""
        now = (self.revision, self.compacted, self._swept)
        if now != self._stored:
            self._db.execute(
                "UPDATE state SET revision = ?, compacted = ?, swept = ?, crc = ?", (*now, state_crc(*now))
            )

    def _old(self, key: str) -> tuple[int, int, int] | None:
        row = self._db.execute(_OLD, (key,)).fetchone()
        if row is None:
            return None
        row_id, created, lease, crc = row
        if crc != entry_crc(key, row_id, created, lease):
            raise bad_row("entry", key)
        return row_id, created, lease

    def _alive(self, lease: int) -> bool:
        row = self._db.execute("SELECT deadline FROM lease WHERE id = ?", (lease,)).fetchone()
        return row is not None and row[0] > self._clock()

    def _apply(self, ops: Sequence[Op], olds: Sequence[tuple[int, int, int] | None]) -> None:
        revision = self.revision + 1
        row_id = revision << SHIFT
        changes, puts, deletes, unleased, leased = [], [], [], [], []
        events: list[Event] = []
        for op, old in zip(ops, olds, strict=True):
            key = op.key
            previous, created, old_lease = old or (0, revision, 0)
            if isinstance(op, Put):
                value: bytes | None = op.value
                lease = op.lease
                puts.append((key, row_id, created, lease, entry_crc(key, row_id, created, lease)))
            elif old is None:
                continue
            else:
                value, lease = None, 0
                deletes.append((key,))
            changes.append(
                (row_id, key, created, lease, previous, change_crc(row_id, key, created, lease, previous, value), value)
            )
            if old_lease != lease:
                unleased += [(old_lease, key)] if old_lease else []
                leased += [(lease, key)] if lease else []
            events.append(Event(revision, key, value))
            row_id += 1
        if not events:
            return
        run = self._db.executemany
        run(_LOG, changes)
        run(_UPSERT, puts)
        run("DELETE FROM entry WHERE key = ?", deletes)
        run("DELETE FROM leased WHERE lease = ? AND key = ?", unleased)
        run("INSERT INTO leased VALUES (?, ?)", leased)
        self.revision = revision
        self.published.append((revision, events))
