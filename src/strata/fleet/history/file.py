"""The SQLite file behind the history: blocking, one connection per instance. ``history`` calls it from threads.

Two tables, so that a change of 100,000 nodes costs 100,000 pairs of integers: ``changes`` holds what happened, once;
``members`` holds to whom. Members are kept in segments of about a million rows: the newest stays small enough that
inserts in node order touch few pages, however large the whole becomes.

A change's number is its revision in the store and its place therein, so it is the same in every rebuild. Order is by
that number, not by time: clocks jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.fleet.history.records import TransitionView
from strata.fleet.history.transitions import Transition
from strata.store.side_file import connect

SEGMENT_ROWS = 1_000_000
PLACES = 1 << 20
"""Changes per revision that can be told apart."""

_SLICE = 2000
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS changes (
  seq INTEGER PRIMARY KEY, time REAL NOT NULL, variable TEXT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL,
  source TEXT NOT NULL, cause TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS members (
  segment INTEGER NOT NULL, uid INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (segment, uid, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segments (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
"""


class HistoryFile:
    """One connection to the index. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path, _SCHEMA, _FORMAT, pragmas="PRAGMA cache_size=-65536")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def watermark(self) -> int:
        """The store's revision up to which everything is in."""
        return int(self._meta("revision", 0))

    def cut(self) -> float:
        """Unix time before which only last values are kept; minus infinity if nothing was pruned."""
        return float(self._meta("cut", float("-inf")))

    def append(self, batch: Sequence[tuple[int, Transition]], through: int) -> int:
        """Add rows of later revisions than the watermark and move it to ``through``; how many members were added."""
        added = 0
        with self._db:
            mark = self.watermark()
            segment = self._open_segment()
            place, last = 0, -1
            for revision, transition in batch:
                if revision <= mark:
                    continue
                place = place if revision == last else 0
                last = revision
                added += self._add(revision * PLACES + place, segment, transition)
                place += len(transition.changes)
            self._db.execute("UPDATE segments SET rows = rows + ? WHERE id = ?", (added, segment))
            self._set_meta("revision", max(mark, through, last))
        return added

    def _add(self, first: int, segment: int, transition: Transition) -> int:
        added = 0
        for seq, change in enumerate(transition.changes, first):
            self._db.execute(
                "INSERT OR REPLACE INTO changes VALUES (?,?,?,?,?,?,?)",
                (seq, transition.time, change.variable, change.old, change.new, change.source, change.cause),
            )
            uids = intset.unpack(change.uids).tolist()
            self._db.executemany(f"INSERT OR IGNORE INTO members VALUES ({segment},?,{seq})", ((uid,) for uid in uids))
            added += len(uids)
        return added

    def of_node(
        self, uid: int, since: float, until: float, before: int | None, limit: int
    ) -> list[tuple[int, TransitionView]]:
        """Changes of a node with ``since <= time <= until`` and their numbers, newest first, below ``before``."""
        query = """SELECT c.seq, c.time, c.variable, c.old, c.new, c.source, c.cause
            FROM members m JOIN changes c ON c.seq = m.seq
            WHERE m.segment IN (SELECT id FROM segments) AND m.uid = ? AND m.seq < ? AND c.time BETWEEN ? AND ?
            ORDER BY m.seq DESC LIMIT ?"""
        last = 2**63 - 1 if before is None else before
        rows = self._db.execute(query, (uid, last, max(since, self.cut()), until, limit))
        return [
            (seq, TransitionView(time=time, variable=variable, old=old, new=new, source=source, cause=cause))
            for seq, time, variable, old, new, source, cause in rows
        ]

    def state_at(self, uid: int, time: float) -> dict[str, str]:
        """The last value of every variable up to ``time``."""
        query = """SELECT c.variable, c.new, max(m.seq)
            FROM members m JOIN changes c ON c.seq = m.seq
            WHERE m.segment IN (SELECT id FROM segments) AND m.uid = ? AND c.time <= ?
            GROUP BY c.variable"""
        return {variable: value for variable, value, _ in self._db.execute(query, (uid, time))}

    def highest_uid(self) -> int:
        """The highest uid that any change is about; -1 if there is none."""
        query = "SELECT max((SELECT uid FROM members WHERE segment = id ORDER BY uid DESC LIMIT 1)) FROM segments"
        highest = self._db.execute(query).get
        return -1 if highest is None else int(highest)

    def begin_prune(self, before: float) -> None:
        """From here on nothing from before ``before`` is shown, whether or not it is gone yet."""
        with self._db:
            self._set_meta("cut", max(before, self.cut()))
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS kept (seq INTEGER PRIMARY KEY); DELETE FROM temp.kept")

    def prune_slice(self, first: int, before: float, living: npt.NDArray[np.int64] | None) -> int:
        """Prune the members of one slice of uids; how many went. Of a living node (None: of all) the last value of
        each variable before the cut stays."""
        query = """SELECT m.segment, m.uid, m.seq, row_number() OVER (
              PARTITION BY m.uid, c.variable ORDER BY m.seq DESC) AS age
            FROM members m JOIN changes c ON c.seq = m.seq
            WHERE m.segment IN (SELECT id FROM segments) AND m.uid BETWEEN ? AND ? AND c.time < ?"""
        last = first + _SLICE - 1
        alive = None if living is None else set(living[(living >= first) & (living <= last)].tolist())
        with self._db:
            gone, kept = [], []
            for segment, uid, seq, age in self._db.execute(query, (first, last, before)):
                if age == 1 and (alive is None or uid in alive):
                    kept.append((seq,))
                else:
                    gone.append((segment, uid, seq))
            self._db.executemany("DELETE FROM members WHERE segment = ? AND uid = ? AND seq = ?", gone)
            self._db.executemany("INSERT OR IGNORE INTO temp.kept VALUES (?)", kept)
        return len(gone)

    def slices(self) -> Iterable[int]:
        """The first uid of each slice that ``prune_slice`` takes."""
        return range(0, self.highest_uid() + 1, _SLICE)

    def end_prune(self, before: float) -> None:
        """Drop changes that nobody has any more, and empty segments."""
        with self._db:
            self._db.execute("DELETE FROM changes WHERE time < ? AND seq NOT IN (SELECT seq FROM temp.kept)", (before,))
            newest = self._db.execute("SELECT max(id) FROM segments").get
            self._db.execute(
                """DELETE FROM segments WHERE id < ?
                   AND NOT EXISTS (SELECT 1 FROM members WHERE segment = segments.id)""",
                (newest or 0,),
            )
        self._db.execute("DROP TABLE temp.kept")

    def _open_segment(self) -> int:
        found = self._db.execute("SELECT id, rows FROM segments ORDER BY id DESC LIMIT 1").fetchone()
        if found is not None and found[1] < SEGMENT_ROWS:
            return int(found[0])
        segment = 1 if found is None else int(found[0]) + 1
        self._db.execute("INSERT INTO segments VALUES (?, 0)", (segment,))
        return segment

    def _meta(self, name: str, default: float) -> float:
        found = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).get
        return default if found is None else found

    def _set_meta(self, name: str, value: float) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
