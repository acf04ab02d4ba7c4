"""What projects use: sums by the hour of what has ended, and what may still be used by what has not. Knows no store.

What is summed stays summed when a job is no longer listed; after a restart it is as much as is listed.
"""

from __future__ import annotations

from typing import NamedTuple

from strata.jobs.submission.records import Job, JobDocument
from strata.schedulers.jobs import Resources

HOUR = 3600
_LONGEST = 400 * 24
"""Hours that are kept."""


class Amount(NamedTuple):
    """Seconds of one core, and of one accelerator."""

    cores: float = 0.0
    accelerators: float = 0.0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.cores + other.cores, self.accelerators + other.accelerators)


def cost(needs: Resources, seconds: float) -> Amount:
    """What one task uses in that time."""
    wanted = needs.accelerators.count if needs.accelerators is not None else 0
    return Amount(needs.tasks * needs.cores * seconds, needs.nodes * wanted * seconds)


def most(document: JobDocument) -> Amount:
    """What a job may use, all its tasks together; one that does not say how long it runs counts for nothing."""
    tasks = len(document.array.indices) if document.array is not None else 1
    return cost(document.resources, float(document.resources.time or 0) * tasks)


def spent(job: Job) -> Amount:
    """What a job's tasks used that have ended."""
    total = Amount()
    for task in job.tasks:
        if task.began is not None and task.ended is not None:
            total = total.plus(cost(job.document.resources, max(task.ended - task.began, 0.0)))
    return total


def booked(job: Job) -> Amount:
    """What a job has used and may use still."""
    left = sum(task.state != "ended" for task in job.tasks)
    return spent(job).plus(cost(job.document.resources, float(job.document.resources.time or 0) * left))


class Usage:
    """Follows jobs as they come, change and go."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Amount]] = {}
        self._ended: dict[str, dict[int, tuple[int, Amount]]] = {}
        """Project → hour → how many ended then, and what they used."""
        self._project: dict[str, str] = {}
        """Job → its project, of all that are listed and have not ended."""
        self._summed: set[str] = set()

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
            self._summed.discard(ident)
            return
        project = job.document.project
        if project is None or ident in self._summed:
            return
        if not job.ended:
            self._project[ident] = project
            self._open.setdefault(project, {})[ident] = booked(job)
            return
        self._summed.add(ident)
        hours = self._ended.setdefault(project, {})
        hour = int(max((task.ended or 0.0 for task in job.tasks), default=0.0)) // HOUR
        count, total = hours.get(hour, (0, Amount()))
        hours[hour] = (count + 1, total.plus(spent(job)))
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
        total = Amount()
        found = self._open.get(project, {})
        for amount in found.values():
            total = total.plus(amount)
        return len(found), total
