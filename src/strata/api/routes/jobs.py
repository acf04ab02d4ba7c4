"""Jobs: work on many nodes, tracked and cancellable."""

from __future__ import annotations

import msgspec
from litestar import get, post

from strata.api.http import seal, unseal
from strata.api.rights import needs
from strata.api.services import Asked, Cursor, JobPath, Limit
from strata.control.fleet_views.jobs import JobPage, JobView

_TAG = "jobs"


@get("/v1/jobs", tags=[_TAG], **needs("read", "job"))
async def list_jobs(ask: Asked, limit: Limit = 100, cursor: Cursor = None) -> JobPage:
    """Jobs, newest first."""
    page = await ask.facade.jobs(ask.who, limit, unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next))


@get("/v1/jobs/{job:str}", tags=[_TAG], **needs("read", "job", 404))
async def show_job(ask: Asked, job: JobPath) -> JobView:
    """One job with its progress."""
    return await ask.facade.job(ask.who, job)


@post("/v1/jobs/{job:str}/cancel", tags=[_TAG], status_code=200, **needs("change", "job", 404, 409))
async def cancel_job(ask: Asked, job: JobPath) -> JobView:
    """Stop a job before its next chunk. What is done stays done."""
    return await ask.facade.cancel_job(ask.who, job)


HANDLERS = [list_jobs, show_job, cancel_job]
