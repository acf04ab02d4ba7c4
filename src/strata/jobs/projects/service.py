"""What can be asked of projects; and whether one has room for a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import reduce

from strata.core.errors import BadRequest, Denied, Refused
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.jobs.projects.records import Project, ProjectSpec, ProjectView
from strata.jobs.projects.usage import HOUR, KWH, Amount, Usage, most, powered
from strata.jobs.submission.records import JobDocument


class ProjectService:
    """Projects with a quota. Schedulers may know more, for which nothing is counted here."""

    def __init__(self, fleet: Fleet) -> None:
        self._clock = fleet.controller.clock.wall
        self._records = fleet.records(Project, kind="project", listed_by="strata project list")
        self._usage = Usage()
        self._asked: dict[str, list[Amount]] = {}
        """What jobs may use that are being written down just now."""
        self.start = self._records.start
        self.stop = self._records.stop
        self.take = self._usage.take
        self.clear = self._usage.clear

    async def all(self, who: Principal) -> Sequence[ProjectView]:
        """All projects, with what they use."""
        return [self._view(one) for _, one in self._records.sorted]

    async def show(self, who: Principal, name: str) -> ProjectView:
        """One of them."""
        return self._view(self._records.get(name))

    async def put(self, who: Principal, name: str, spec: ProjectSpec, expected: int | None) -> ProjectView:
        """Make a project, or change one. Jobs that are under way go on."""
        await self._records.put(who.name, name, Project(name=name, spec=spec), expected=expected)
        return self._view(self._records.get(name))

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove one: its jobs are no longer counted."""
        self._records.get(name)
        await self._records.delete(who.name, name, expected=expected)

    def knows(self, name: str | None) -> bool:
        """Whether jobs for it are counted here."""
        return name is not None and self._records.find(name) is not None

    @contextlib.contextmanager
    def booking(self, document: JobDocument, account: str) -> Iterator[None]:
        """While a job is written down: what it may use is taken already. ``Denied``: its account is no member;
        ``Refused``: the project has not enough left."""
        self._check(document, account)
        asks, asked = most(document), self._asked.setdefault(document.project or "", [])
        asked.append(asks)
        try:
            yield
        finally:
            asked.remove(asks)
            if not asked:
                self._asked.pop(document.project or "", None)

    def _check(self, document: JobDocument, account: str) -> None:
        """Whether its project takes a job."""
        project = self._records.find(document.project) if document.project is not None else None
        if project is None:
            return
        spec = project.spec
        if spec.members and account not in spec.members:
            raise Denied(
                f"{account} is no member of the project {project.name}",
                where="project",
                hint="ask an administrator: strata project set --member",
            )
        self._check_energy(project, document)
        if not spec.limited:
            return
        if document.resources.time is None:
            raise BadRequest(
                f"the project {project.name} has a quota: a job for it must have a time limit", where="resources.time"
            )
        asks = most(document)
        _, used = self._usage.ended(project.name, self._clock() - spec.per)
        _, taken = self._usage.open(project.name)
        taken = reduce(Amount.plus, self._asked.get(project.name, ()), taken)
        for what, limit, one, two, three in (
            ("core hours", spec.core_hours, used.cores, taken.cores, asks.cores),
            ("accelerator hours", spec.accelerator_hours, used.accelerators, taken.accelerators, asks.accelerators),
        ):
            if limit is not None and three and one + two + three > limit * HOUR:
                told = f"the project {project.name} has {limit:g} {what} in {spec.per / 86_400:g} days"
                raise Refused(
                    f"{told}: {one / HOUR:.1f} are used, {two / HOUR:.1f} booked by jobs that have not ended, and this "
                    f"one asks for {three / HOUR:.1f}",
                    by="quota",
                    where="project",
                    hint="ask for less, wait, or have the quota raised",
                )

    def _check_energy(self, project: Project, document: JobDocument) -> None:
        """What a job will draw is known afterwards: it is refused once nothing is left, or where it says itself that it
        may draw more than that."""
        limit = project.spec.kwh
        if limit is None:
            return
        _, used = self._usage.ended(project.name, self._clock() - project.spec.per)
        tasks = len(document.array.indices) if document.array is not None else 1
        asks = powered(document.needs) * tasks
        if used.joules >= limit * KWH or used.joules + asks > limit * KWH:
            told = f"the project {project.name} has {limit:g} kWh in {project.spec.per / 86_400:g} days"
            more = f", and this one may draw {asks / KWH:.3g}" if asks else ""
            raise Refused(
                f"{told}: {used.joules / KWH:.3g} ± {used.error / KWH:.2g} are used{more}",
                by="quota",
                where="project",
                hint="ask for less power or time, wait, or have the quota raised",
            )

    def _view(self, project: Project) -> ProjectView:
        spec = project.spec
        ended, used = self._usage.ended(project.name, self._clock() - spec.per)
        count, taken = self._usage.open(project.name)
        return ProjectView.of(
            spec,
            name=project.name,
            revision=self._records.revision(project.name),
            used_kwh=used.joules / KWH,
            kwh_error=used.error / KWH,
            measured_jobs=int(used.measured),
            used_core_hours=used.cores / HOUR,
            used_accelerator_hours=used.accelerators / HOUR,
            booked_core_hours=taken.cores / HOUR,
            booked_accelerator_hours=taken.accelerators / HOUR,
            open_jobs=count,
            ended_jobs=ended,
        )
