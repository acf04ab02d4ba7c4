"""Requests about tracked work."""

from __future__ import annotations

from strata.control.fleet_views.jobs import JobPage, JobView
from strata.control.job_record import Job
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase
from strata.core.errors import NotFound


class JobService(ServiceBase):
    """Jobs."""

    async def jobs(self, who: Principal, limit: int, after: str) -> JobPage:
        """Jobs, newest first (with a scope: one's own)."""
        found = [job for job in await self.jobs_.recent(limit=2**31, after=after) if _sees(who, job)]
        following = found[limit - 1].id if len(found) > limit else None
        return JobPage(items=tuple(job.view() for job in found[:limit]), next=following)

    async def job(self, who: Principal, job: str) -> JobView:
        """One job."""
        return (await self._find(who, job)).view()

    async def cancel_job(self, who: Principal, job: str) -> JobView:
        """Ask it to stop."""
        await self._find(who, job)
        return (await self.jobs_.cancel(job, who.name)).view()

    async def _find(self, who: Principal, job: str) -> Job:
        found = await self.jobs_.show(job)
        if not _sees(who, found):
            raise NotFound(f"no such job: {job[:80]}", where="job")
        return found


def _sees(who: Principal, job: Job) -> bool:
    return not who.scope or job.author == who.name
