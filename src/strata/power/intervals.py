"""When and where jobs and applications ran: as the workload manager tells, in a file beside the telemetry.

What is told may come twice, late and from every node of a job by itself; it comes to the same. An application is a part
of a job (a step, an ``apid``); a run with an empty ``apid`` is the job itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from strata.core.errors import Unavailable
from strata.power.interval_records import Event, Run, Summary, Told
from strata.power.intervals_file import IntervalFile
from strata.store.side_file import FileThread

_T = TypeVar("_T")


class Intervals:
    """The runs in ``path``. One thread reads and writes; the event loop never waits for the disk."""

    def __init__(self, path: Path, *, keep: float = 400 * 86_400.0) -> None:
        self.keep = keep
        """Seconds after its end that a run is remembered."""
        self._path = path
        self._thread = FileThread("job-intervals", lambda: IntervalFile(path))

    async def start(self) -> None:
        """Open the file."""
        await self._call(lambda _: None)

    async def stop(self) -> None:
        """Let go of it."""
        await self._thread.close()

    async def tell(self, events: Sequence[Event]) -> Told:
        """Note what happened, in the order given."""
        return await self._call(lambda file: file.tell(events))

    async def account(self, runs: Sequence[Run]) -> Told:
        """Note whole runs, as accounting has them: it knows better what was told before."""
        return await self._call(lambda file: file.account(runs))

    async def find(self, job: str, apid: str = "") -> Sequence[Run]:
        """Every run of a job, or of an application of it, the newest first; more than one where it was requeued."""
        return await self._call(lambda file: file.find(job, apid))

    async def of_application(self, apid: str) -> Sequence[Run]:
        """Every run of an application, whatever its job; the newest first."""
        return await self._call(lambda file: file.of_application(apid))

    async def applications(self, job: str, start: float) -> Sequence[Run]:
        """The applications of a run of a job, oldest first."""
        return await self._call(lambda file: file.applications(job, start))

    async def newest(self, user: str, since: float, limit: int, *, running: bool = False) -> Sequence[Run]:
        """Jobs (of a user) that ran after ``since``, the newest first."""
        return await self._call(lambda file: file.newest(user, since, limit, running))

    async def earlier(self, run: Run, limit: int) -> Sequence[Run]:
        """Finished runs of other jobs, of the same user and name, that began before this one, the newest first: with
        a job jobs, with an application applications."""
        return await self._call(lambda file: file.earlier(run, limit))

    async def unsummed(self, before: float, limit: int) -> Sequence[Run]:
        """Runs that ended before then and have no summary."""
        return await self._call(lambda file: file.unsummed(before, limit))

    async def sum_up(self, run: Run, summary: Summary) -> None:
        """Keep what it came to."""
        await self._call(lambda file: file.sum_up(run, summary))

    async def prune(self, now: float) -> int:
        """Forget what is too old; how many went."""
        return await self._call(lambda file: file.prune(now - self.keep))

    async def _call(self, work: Callable[[IntervalFile], _T]) -> _T:
        try:
            return await self._thread.run(work)
        except apsw.Error as error:
            raise Unavailable(f"the book of jobs cannot be used: {error}", where=str(self._path)) from error
