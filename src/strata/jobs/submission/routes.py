"""Jobs: submitted, listed, followed, ended."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.response import Stream as StreamResponse

from strata.api import sse
from strata.api.http import AnyRequest, seal, unseal
from strata.api.rights import answers, needs
from strata.api.services import Asked, Cursor, Limit, Watchers
from strata.core.texts import NAME, PLAIN, Out
from strata.jobs.submission.records import (
    JOB_ID,
    JobDocument,
    JobPage,
    JobPlan,
    JobView,
    LogPart,
    StateFilter,
    Stream,
    TargetView,
)
from strata.jobs.submission.service import JobService

_TAG = "jobs"

JobPath = Annotated[str, PathParameter(pattern=JOB_ID, max_length=12)]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        pattern=r"^[\u0021-\u007e]{1,128}$(?!\n)",
        max_length=128,
        description="The same key again is the same job, however often the request is sent.",
    ),
]
Everybody = Annotated[bool, QueryParameter(name="all", description="Jobs of everybody.")]
Text = Annotated[str | None, QueryParameter(pattern=PLAIN, max_length=128)]
InState = Annotated[
    StateFilter | None, QueryParameter(name="state", description="Only jobs in this state, or that ended in this way.")
]
TargetName = Annotated[str | None, QueryParameter(pattern=NAME, max_length=63, description="Only jobs of this target.")]
TaskIndex = Annotated[int | None, QueryParameter(ge=0, le=10_000_000, description="Which task of an array.")]
Which = Annotated[Stream, QueryParameter(description="Which of its outputs.")]
Offset = Annotated[int, QueryParameter(ge=0, le=sse.NEWEST, description="Byte to begin at.")]


class Targets(Out, frozen=True, kw_only=True):
    """What runs jobs here."""

    items: tuple[TargetView, ...]


class Followed(Out, frozen=True, kw_only=True):
    """One event of a stream, field by field."""

    event: Literal["job", "compacted"]
    data: str
    id: str = ""
    """The revision to resume after."""


class FollowedLog(Out, frozen=True, kw_only=True):
    """One event of a log that is followed, field by field."""

    event: Literal["log"]
    data: str
    id: str = ""
    """The byte to resume at."""


@post("/v1/jobs", tags=[_TAG], **needs("create", "job", 404, 409, 502, body=True))
async def submit_job(ask: Asked, data: JSONBody[JobDocument], key: Key = None) -> JobView:
    """Submit a job. It is kept before it is sent to a scheduler, and runs as the account of whoever submits it."""
    return await ask.of(JobService).submit(ask.who, data, key=key or "")


@post("/v1/jobs/plan", tags=[_TAG], status_code=200, **needs("create", "job", 404, 409, 502, body=True))
async def plan_job(ask: Asked, data: JSONBody[JobDocument]) -> JobPlan:
    """Where a job would go, why, and what would be run there. Nothing is submitted."""
    return await ask.of(JobService).plan(ask.who, data)


@get("/v1/jobs", tags=[_TAG], **needs("read", "job"))
async def list_jobs(
    ask: Asked,
    everybody: Everybody = False,
    owner: Text = None,
    in_state: InState = None,
    target: TargetName = None,
    name: Text = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobPage:
    """Jobs, newest first: your own, or everybody's for those who run the machine."""
    page = ask.of(JobService).jobs(
        ask.who,
        everybody=everybody,
        owner=owner or "",
        state=in_state or "",
        target=target or "",
        name=name or "",
        limit=limit,
        after=unseal(cursor),
    )
    return msgspec.structs.replace(page, next=seal(page.next))


@get("/v1/jobs/targets", tags=[_TAG], **needs("read", "job", 502))
async def list_targets(ask: Asked) -> Targets:
    """What runs jobs here, with its queues."""
    return Targets(items=tuple(await ask.of(JobService).target_views()))


@get(
    "/v1/jobs/events",
    tags=[_TAG],
    media_type="text/event-stream",
    **needs(
        "read",
        "job",
        also={
            200: answers(
                Followed,
                "Events: `id` is a revision to resume after, `event` is job or compacted (list again, then follow from "
                "there); `data` is the job as JSON.",
                "text/event-stream",
            )
        },
    ),
)
async def follow_jobs(
    request: AnyRequest,
    ask: Asked,
    everybody: Everybody = False,
    since: Annotated[int | None, QueryParameter(ge=0, le=sse.NEWEST, description="Resume after this revision.")] = None,
) -> StreamResponse:
    """Changes of your jobs from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    ask.of(Watchers).check_room()
    events = await ask.of(JobService).events(ask.who, sse.resume_point(request, since), everybody=everybody)
    return sse.stream(events, ask.of(Watchers), lambda e: sse.event(e.revision, "job", e.job))


@get("/v1/jobs/{job:str}", tags=[_TAG], **needs("read", "job", 404))
async def show_job(ask: Asked, job: JobPath) -> JobView:
    """One job with everything that is known of it."""
    return ask.of(JobService).job(ask.who, job)


@get("/v1/jobs/{job:str}/wait", tags=[_TAG], **needs("read", "job", 404))
async def wait_job(
    ask: Asked,
    job: JobPath,
    timeout: Annotated[float, QueryParameter(ge=0, le=60, description="Seconds to wait at most.")] = 30.0,
) -> JobView:
    """One job, once it has ended or the time is over."""
    return await ask.of(JobService).wait(ask.who, job, timeout)


@get("/v1/jobs/{job:str}/log", tags=[_TAG], **needs("read", "job", 404, 502))
async def read_log(
    ask: Asked, job: JobPath, stream: Which = "stdout", task: TaskIndex = None, offset: Offset = 0
) -> LogPart:
    """A piece of what a job printed; the next one begins at `next`."""
    return await ask.of(JobService).log(ask.who, job, stream=stream, task=task, offset=offset)


@get(
    "/v1/jobs/{job:str}/log/follow",
    tags=[_TAG],
    media_type="text/event-stream",
    **needs(
        "read",
        "job",
        404,
        502,
        also={
            200: answers(
                FollowedLog,
                "Events: `id` is a byte to resume at, `event` is log; `data` is a piece of the log as JSON, the last "
                "with `end`.",
                "text/event-stream",
            )
        },
    ),
)
async def follow_log(
    request: AnyRequest,
    ask: Asked,
    job: JobPath,
    stream: Which = "stdout",
    task: TaskIndex = None,
    offset: Offset = 0,
) -> StreamResponse:
    """What a job prints, as it comes, until it has ended; the `Last-Event-ID` header wins over `offset`."""
    ask.of(Watchers).check_room()
    start = sse.resume_point(request, offset) or 0
    parts = await ask.of(JobService).follow_log(ask.who, job, stream=stream, task=task, offset=start)
    return sse.stream(parts, ask.of(Watchers), lambda part: sse.event(part.next, "log", part))


@post("/v1/jobs/{job:str}/cancel", tags=[_TAG], status_code=200, **needs("delete", "job", 404, 409, 502))
async def cancel_job(ask: Asked, job: JobPath) -> JobView:
    """End a job. One that has ended stays as it ended."""
    return await ask.of(JobService).cancel(ask.who, job)


@post("/v1/jobs/{job:str}/hold", tags=[_TAG], status_code=200, **needs("change", "job", 404, 409, 502))
async def hold_job(ask: Asked, job: JobPath) -> JobView:
    """Keep a job that has not begun from beginning."""
    return await ask.of(JobService).hold(ask.who, job)


@post("/v1/jobs/{job:str}/release", tags=[_TAG], status_code=200, **needs("change", "job", 404, 409, 502))
async def release_job(ask: Asked, job: JobPath) -> JobView:
    """Let a job begin that was held."""
    return await ask.of(JobService).release(ask.who, job)


@post("/v1/jobs/{job:str}/rerun", tags=[_TAG], **needs("create", "job", 404, 409, 502))
async def rerun_job(ask: Asked, job: JobPath) -> JobView:
    """The same document as a new job. It waits for no other."""
    return await ask.of(JobService).rerun(ask.who, job)
