"""Jobs: submitted, listed, followed, ended."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.response import Stream as StreamResponse

from strata.api import sse
from strata.api.http import AnyRequest, seal, unseal
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, Watchers
from strata.core.texts import NAME, PLAIN, Out
from strata.jobs.submission.records import JOB_ID, JobDocument, JobPage, JobView, StateFilter, Stream, TargetView
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
    **sse.streamed(
        "job",
        event=Followed,
        described="Events: `id` is a revision to resume after, `event` is job or compacted (list again, then follow "
        "from there); `data` is the job as JSON.",
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


@get(
    "/v1/jobs/{job:str}/log/follow",
    tags=[_TAG],
    **sse.streamed(
        "job",
        404,
        502,
        event=FollowedLog,
        described="Events: `id` is a byte to resume at, `event` is log; `data` is a piece of the log as JSON, the last "
        "with `end`.",
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


_ROUTES = Routes(JobService, "job", tag=_TAG)
_ROUTES.post("plan_job", "/v1/jobs/plan", JobService.plan, "create", 404, 409, 502)
_ROUTES.get(
    "wait_job",
    "/v1/jobs/{job:str}/wait",
    JobService.wait,
    404,
    job=JobPath,
    timeout=Annotated[float, QueryParameter(ge=0, le=60, description="Seconds to wait at most.")],
)
_ROUTES.get(
    "read_log",
    "/v1/jobs/{job:str}/log",
    JobService.log,
    404,
    502,
    job=JobPath,
    stream=Which,
    task=TaskIndex,
    offset=Offset,
)
_ROUTES.post("cancel_job", "/v1/jobs/{job:str}/cancel", JobService.cancel, "delete", 404, 409, 502, job=JobPath)
_ROUTES.post("hold_job", "/v1/jobs/{job:str}/hold", JobService.hold, "change", 404, 409, 502, job=JobPath)
_ROUTES.post("release_job", "/v1/jobs/{job:str}/release", JobService.release, "change", 404, 409, 502, job=JobPath)
_ROUTES.post(
    "rerun_job", "/v1/jobs/{job:str}/rerun", JobService.rerun, "create", 404, 409, 502, success=201, job=JobPath
)
