"""When and where jobs and applications ran: as the workload manager tells, in a file beside the telemetry.

What is told may come twice, late and from every node of a job by itself; it comes to the same. An application is a part
of a job (a step, an ``apid``); a run with an empty ``apid`` is the job itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw
import msgspec

from strata.core import intset
from strata.core.errors import Unavailable
from strata.power.accounting.records import Event, Run, Summary, Told
from strata.store.side_file import FileThread, connect

SAME = 600.0
"""Seconds within which two starts (or two ends) of a job are the same one, told by several of its nodes."""

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  job TEXT NOT NULL, apid TEXT NOT NULL, start REAL NOT NULL, end REAL, user TEXT NOT NULL, name TEXT NOT NULL,
  uids BLOB NOT NULL, pauses BLOB NOT NULL, unplaced REAL NOT NULL, doubt TEXT NOT NULL, summary BLOB,
  PRIMARY KEY (job, apid, start)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_by_user ON runs (user, name, start);
CREATE INDEX IF NOT EXISTS runs_by_start ON runs (apid, start);
CREATE INDEX IF NOT EXISTS runs_by_end ON runs (end);
"""
_COLUMNS = "job, apid, start, end, user, name, uids, pauses, unplaced, doubt, summary"
_encode = msgspec.msgpack.Encoder().encode
_runs = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...]).decode
_pauses = msgspec.msgpack.Decoder(tuple[tuple[float, float | None], ...]).decode
_summary = msgspec.msgpack.Decoder(Summary).decode


class IntervalFile:
    """The SQLite file behind ``Intervals``: blocking, for one thread."""

    def __init__(self, path: Path) -> None:
        # What is told of jobs is told once: unlike other side files, this one waits for the disk.
        self._db = connect(path, _SCHEMA, _FORMAT, pragmas="PRAGMA synchronous=FULL")

    def close(self) -> None:
        self._db.close()

    # -- what is told

    def tell(self, events: Sequence[Event]) -> Told:
        """Note what happened, in the order given. One that makes no sense does not keep the others out."""
        refused = []
        with self._db:
            for event in events:
                why = self._take(event)
                if why:
                    refused.append((event.job, why))
        return Told(taken=len(events) - len(refused), refused=tuple(refused))

    def account(self, runs: Sequence[Run]) -> Told:
        """Note whole runs, as accounting has them: it knows better what was told before."""
        refused = []
        with self._db:
            for run in runs:
                if run.end is not None and run.end < run.start:
                    refused.append((run.job, "it ends before it begins"))
                    continue
                known = [one for one in self.find(run.job, run.apid) if _same(one, run)]
                for old in known:
                    self._delete(old)
                right = _corrected(run, known)
                same = (old for old in known if msgspec.structs.replace(old, summary=None) == right)
                self._put(next(same, right))
        return Told(taken=len(runs) - len(refused), refused=tuple(refused))

    def _take(self, event: Event) -> str:
        last = next(iter(self.find(event.job, event.apid)), None)
        if event.what == "start":
            return self._start(event, last)
        if last is None:
            return "nobody told that it began"
        if event.time < last.start:
            return "that is before it began"
        if event.what == "end":
            if last.end is not None and event.time - last.end > SAME:
                return "it had ended before"
            self._replace(last, _ended(last, max(event.time, last.end or 0.0)))
        elif last.end is not None:
            return "it has ended"
        else:
            self._replace(last, _paused(last, event))
        if not event.apid:
            for part in self.applications(event.job, last.start):
                if part.end is None and event.time >= part.start:
                    self._replace(part, _ended(part, event.time) if event.what == "end" else _paused(part, event))
        return ""

    def _start(self, event: Event, last: Run | None) -> str:
        uids = event.uids
        if event.apid and not uids:
            job = next(iter(self.find(event.job)), None)
            if job is None:
                return "an application of a job that has no energy record: say where it runs"
            uids = job.uids
            event = msgspec.structs.replace(event, user=event.user or job.user, name=event.name or job.name)
        fresh = Run(job=event.job, apid=event.apid, start=event.time, user=event.user, name=event.name, uids=uids)
        if last is None:
            self._put(fresh)
        elif abs(event.time - last.start) <= SAME and not (last.end is not None and event.time > last.end):
            self._replace(
                last,
                msgspec.structs.replace(
                    last,
                    start=min(last.start, event.time),
                    uids=intset.union(last.uids, uids),
                    user=last.user or event.user,
                    name=last.name or event.name,
                ),
            )
        elif event.time < last.start:
            return "that is before it began"
        else:
            if last.end is None:
                told = msgspec.structs.replace(_ended(last, event.time), doubt="its end was not told: it began again")
                self._replace(last, told)
            self._put(fresh)
        return ""

    # -- questions

    def find(self, job: str, apid: str = "") -> list[Run]:
        """Every run of a job, or of an application of it, the newest first; more than one where it was requeued."""
        return self._select("job = ? AND apid = ? ORDER BY start DESC LIMIT 100", job, apid)

    def of_application(self, apid: str) -> list[Run]:
        """Every run of an application, whatever its job; the newest first."""
        return self._select("apid = ? ORDER BY start DESC LIMIT 100", apid)

    def applications(self, job: str, start: float) -> list[Run]:
        """The applications of the run of a job that began then, oldest first."""
        following = self._db.execute(
            "SELECT min(start) FROM runs WHERE job = ? AND apid = '' AND start > ?", (job, start)
        ).get
        until = float("inf") if following is None else following
        query = "job = ? AND apid != '' AND start >= ? AND start < ? ORDER BY start LIMIT 10000"
        return self._select(query, job, start - SAME, until)

    def newest(self, user: str, since: float, limit: int, running: bool = False) -> list[Run]:
        """Jobs (of a user) that ran after ``since``, the newest first."""
        where, given = "apid = '' AND (end IS NULL OR end >= ?)", list[Any]([since])
        if user:
            where += " AND user = ?"
            given.append(user)
        if running:
            where += " AND end IS NULL"
        return self._select(f"{where} ORDER BY start DESC LIMIT ?", *given, limit)

    def earlier(self, run: Run, limit: int) -> list[Run]:
        """Finished, of the same user and name: jobs with jobs, applications with applications, of other jobs."""
        kind = "apid != ''" if run.apid else "apid = ''"
        query = f"user = ? AND name = ? AND {kind} AND job != ? AND start < ? AND end IS NOT NULL"
        given = (run.user, run.name, run.job, run.start, limit)
        return self._select(f"{query} ORDER BY start DESC LIMIT ?", *given) if run.user else []

    def unsummed(self, before: float, limit: int) -> list[Run]:
        """Runs that ended before then and have no summary, the oldest end first: its samples go first."""
        return self._select("end < ? AND summary IS NULL ORDER BY end LIMIT ?", before, limit)

    def sum_up(self, run: Run, summary: Summary) -> None:
        """Unless it has changed meanwhile."""
        self._db.execute(
            "UPDATE runs SET summary = ? WHERE job = ? AND apid = ? AND start = ? AND end = ?",
            (_encode(summary), run.job, run.apid, run.start, run.end),
        )

    def prune(self, before: float) -> int:
        """What ended before, and what began so long ago that its end will not come."""
        with self._db:
            self._db.execute("DELETE FROM runs WHERE end < ? OR (end IS NULL AND start < ?)", (before, before))
        return int(self._db.changes())

    # -- rows

    def _select(self, query: str, *given: Any) -> list[Run]:
        return [_run(row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM runs WHERE {query}", given)]

    def _put(self, run: Run) -> None:
        self._db.execute(
            f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (
                run.job, run.apid, run.start, run.end, run.user, run.name, _encode(run.uids), _encode(run.pauses),
                run.unplaced, run.doubt, _encode(run.summary) if run.summary else None,
            ),
        )  # fmt: skip

    def _delete(self, run: Run) -> None:
        self._db.execute("DELETE FROM runs WHERE job = ? AND apid = ? AND start = ?", (run.job, run.apid, run.start))

    def _replace(self, old: Run, new: Run) -> None:
        self._delete(old)
        self._put(msgspec.structs.replace(new, summary=None))


def _run(row: tuple[Any, ...]) -> Run:
    job, apid, start, end, user, name, uids, pauses, unplaced, doubt, summary = row
    return Run(
        job=job, apid=apid, start=start, end=end, user=user, name=name, uids=_runs(uids), pauses=_pauses(pauses),
        unplaced=unplaced, doubt=doubt, summary=_summary(summary) if summary else None,
    )  # fmt: skip


def _ended(run: Run, time: float) -> Run:
    pauses = tuple((begun, time if over is None else over) for begun, over in run.pauses)
    return msgspec.structs.replace(run, end=time, pauses=pauses)


def _paused(run: Run, event: Event) -> Run:
    """Suspended or resumed; told twice, it is so once."""
    open_ = bool(run.pauses) and run.pauses[-1][1] is None
    if event.what == "suspend" and not open_:
        return msgspec.structs.replace(run, pauses=(*run.pauses, (event.time, None)))
    if event.what == "resume" and open_:
        begun = run.pauses[-1][0]
        return msgspec.structs.replace(run, pauses=(*run.pauses[:-1], (begun, max(begun, event.time))))
    return run


def _same(known: Run, told: Run) -> bool:
    """Whether accounting speaks of this run: they overlap, or begin about together."""
    ends = float("inf") if told.end is None else told.end
    known_ends = float("inf") if known.end is None else known.end
    return abs(known.start - told.start) <= SAME or (known.start < ends and told.start < known_ends)


def _corrected(told: Run, known: Iterable[Run]) -> Run:
    """What accounting says, with the suspensions that were told as they happened: it knows only their sum."""
    end = float("inf") if told.end is None else told.end
    placed, uids, user, name = list[tuple[float, float | None]](), told.uids, told.user, told.name
    for run in known:
        user, name, uids = user or run.user, name or run.name, uids or run.uids
        for begun, over in run.pauses:
            if begun < end and (over is None or over > told.start):
                until = told.end if over is None else min(over, end)
                placed.append((max(begun, told.start), until))
    pauses = tuple(sorted(placed))
    seconds = sum(over - begun for begun, over in pauses if over is not None)
    unplaced = max(0.0, told.unplaced - seconds)
    return msgspec.structs.replace(told, user=user, name=name, uids=uids, pauses=pauses, unplaced=unplaced)


_T = TypeVar("_T")
_P = ParamSpec("_P")


def _in_thread(
    work: Callable[Concatenate[IntervalFile, _P], _T],
) -> Callable[Concatenate[Intervals, _P], Coroutine[Any, Any, _T]]:
    """A method of the file, done by its thread."""

    async def call(self: Intervals, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self.run(lambda file: work(file, *arguments, **named))

    return call


class Intervals:
    """The runs in ``path``. One thread reads and writes; the event loop never waits for the disk."""

    def __init__(self, path: Path, *, keep: float = 400 * 86_400.0) -> None:
        self.keep = keep
        """Seconds after its end that a run is remembered."""
        self._path = path
        self._thread = FileThread("job-intervals", lambda: IntervalFile(path))
        self.stop = self._thread.close

    async def start(self) -> None:
        await self.run(lambda _: None)

    tell = _in_thread(IntervalFile.tell)
    account = _in_thread(IntervalFile.account)
    find = _in_thread(IntervalFile.find)
    of_application = _in_thread(IntervalFile.of_application)
    applications = _in_thread(IntervalFile.applications)
    newest = _in_thread(IntervalFile.newest)
    earlier = _in_thread(IntervalFile.earlier)
    unsummed = _in_thread(IntervalFile.unsummed)
    sum_up = _in_thread(IntervalFile.sum_up)

    async def prune(self, now: float) -> int:
        """Forget what is too old; how many went."""
        return await self.run(lambda file: file.prune(now - self.keep))

    async def run(self, work: Callable[[IntervalFile], _T]) -> _T:
        """Have the file's thread do it."""
        try:
            return await self._thread.run(work)
        except apsw.Error as error:
            raise Unavailable(f"the record of jobs cannot be used: {error}", where=str(self._path)) from error
