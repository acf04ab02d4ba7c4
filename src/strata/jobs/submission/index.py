"""Which jobs there are, by age, owner and target: so that a list of thousands is quick. Knows no store."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping

from strata.jobs.submission.records import Job, JobLine
from strata.jobs.submission.views import line

Age = tuple[float, str]
"""When a job was submitted, and its id: the order of lists."""


class JobIndex:
    """Follows what ``Records`` tells."""

    def __init__(self) -> None:
        self.lines: dict[str, JobLine] = {}
        self.open: dict[str, set[str]] = {}
        """Target → its jobs that have not ended."""
        self.ended: list[tuple[float, str]] = []
        """Jobs that have ended, by when."""
        self._all: list[Age] = []
        self._of: dict[str, list[Age]] = {}
        self._told: dict[str, tuple[str, float | None]] = {}

    def clear(self) -> None:
        """All are about to be told anew."""
        self.lines.clear()
        self.open.clear()
        self.ended.clear()
        self._all.clear()
        self._of.clear()

    def take(self, ident: str, job: Job | None) -> None:
        """A job came, changed, or (None) went."""
        before = self.lines.get(ident)
        if before is not None:
            self.open.get(before.target, set()).discard(ident)
        if job is None:
            if before is not None:
                self._drop(before)
            return
        shown = self.lines[ident] = line(job, self._told.get(ident, ("", None)))
        if before is None:
            bisect.insort(self._all, (shown.submitted, ident))
            bisect.insort(self._of.setdefault(shown.owner, []), (shown.submitted, ident))
        if shown.state != "ended":
            self.open.setdefault(shown.target, set()).add(ident)
            return
        self._told.pop(ident, None)
        if before is None or before.state != "ended":
            bisect.insort(self.ended, (shown.ended or shown.submitted, ident))

    def told(self, job: Job, told: tuple[str, float | None]) -> None:
        """Why a job waits, and until when: known, and not kept."""
        if self._told.get(job.id, ("", None)) != told:
            self._told[job.id] = told
            self.lines[job.id] = line(job, told)

    def newest(self, owner: str | None, before: Age | None) -> Iterator[JobLine]:
        """Jobs of an owner (None: of all), newest first, from before a place on."""
        found = self._all if owner is None else self._of.get(owner, [])
        at = len(found) if before is None else bisect.bisect_left(found, before)
        lines: Mapping[str, JobLine] = self.lines
        for number in range(at - 1, -1, -1):
            yield lines[found[number][1]]

    def _drop(self, before: JobLine) -> None:
        del self.lines[before.id]
        self._told.pop(before.id, None)
        place = (before.submitted, before.id)
        _remove(self._all, place)
        _remove(self._of.get(before.owner, []), place)
        if not self._of.get(before.owner):
            self._of.pop(before.owner, None)
        if before.state == "ended":
            _remove(self.ended, (before.ended or before.submitted, before.id))


def _remove(places: list[Age], place: Age) -> None:
    at = bisect.bisect_left(places, place)
    if at < len(places) and places[at] == place:
        del places[at]
