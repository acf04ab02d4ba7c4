"""What projects use: sums by the hour of what has ended, and what may still be used by what has not. Knows no store.

What is summed stays summed when a job is no longer listed; after a restart it is as much as is listed.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from strata.jobs.submission.records import Job, JobDocument
from strata.schedulers.jobs import Resources

HOUR = 3600
KWH = 3.6e6
"""Joules."""
_LONGEST = 400 * 24
"""Hours that are kept."""


class Amount(NamedTuple):
    """Seconds of one core and of one accelerator, and energy as far as it was measured."""

    cores: float = 0.0
    accelerators: float = 0.0
    joules: float = 0.0
    error: float = 0.0
    """Joules by which that may be wrong."""
    measured: float = 0
    """Jobs whose energy is in it."""

    def plus(self, other: Amount) -> Amount:
        return Amount(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def cost(needs: Resources, seconds: float) -> Amount:
    """What one task uses in that time."""
    wanted = needs.accelerators.count if needs.accelerators is not None else 0
    return Amount(needs.tasks * needs.cores * seconds, needs.nodes * wanted * seconds)


def powered(needs: Resources) -> float:
    """Joules that a job may draw at most, where it says what its nodes may draw and for how long; else 0."""
    return float(needs.nodes * (needs.power or 0) * (needs.time or 0))


def drawn(job: Job) -> Amount:
    """The energy of a job that has ended, once it is known."""
    used = job.energy
    return Amount() if used is None else Amount(joules=used.joules, error=used.error, measured=1)


def most(document: JobDocument) -> Amount:
    """What a job may use, all its tasks together; one that does not say how long it runs counts for nothing."""
    tasks = len(document.array.indices) if document.array is not None else 1
    return cost(document.needs, float(document.needs.time or 0) * tasks)


def spent(job: Job) -> Amount:
    """What a job's tasks used that have ended."""
    ran = (task.ended - task.began for task in job.tasks if task.began is not None and task.ended is not None)
    return reduce(Amount.plus, (cost(job.document.needs, max(seconds, 0.0)) for seconds in ran), Amount())


def booked(job: Job) -> Amount:
    """What a job has used and may use still."""
    left = sum(task.state != "ended" for task in job.tasks)
    return spent(job).plus(cost(job.document.needs, float(job.document.needs.time or 0) * left))


class Usage:
    """Follows jobs as they come, change and go."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Amount]] = {}
        self._ended: dict[str, dict[int, tuple[int, Amount]]] = {}
        """Project → hour → how many ended then, and what they used."""
        self._project: dict[str, str] = {}
        """Job → its project, of all that are listed and have not ended."""
        self._summed: dict[str, bool] = {}
        """Jobs that are summed up and still listed; whether their energy is, too."""

    def clear(self) -> None:
        """All are about to be told anew. What is summed stays so."""
        self._open.clear()
        self._project.clear()

    def take(self, ident: str, job: Job | None) -> None:
        """A job came, changed, or (None) is no longer listed."""
        before = self._project.pop(ident, None)
        if before is not None:
            self._open[before].pop(ident, None)
        if job is None:
            self._summed.pop(ident, None)
            return
        project = job.document.project
        if project is None or self._summed.get(ident):
            return
        if not job.ended:
            self._project[ident] = project
            self._open.setdefault(project, {})[ident] = booked(job)
            return
        again = ident in self._summed  # its energy is known later than the rest
        self._summed[ident] = job.energy is not None
        hours = self._ended.setdefault(project, {})
        hour = int(max((task.ended or 0.0 for task in job.tasks), default=0.0)) // HOUR
        count, total = hours.get(hour, (0, Amount()))
        used = drawn(job) if again else spent(job).plus(drawn(job))
        hours[hour] = (count + (not again), total.plus(used))
        while len(hours) > _LONGEST:
            del hours[min(hours)]

    def ended(self, project: str, since: float) -> tuple[int, Amount]:
        """How many jobs ended since then, to the hour, and what they used."""
        count, total = 0, Amount()
        for hour, (jobs, amount) in self._ended.get(project, {}).items():
            if (hour + 1) * HOUR > since:
                count, total = count + jobs, total.plus(amount)
        return count, total

    def open(self, project: str) -> tuple[int, Amount]:
        """How many jobs have not ended, and what they have used and may use still."""
        found = self._open.get(project, {})
        return len(found), reduce(Amount.plus, found.values(), Amount())
