"""Targets that are connected for jobs alone."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import NAME, ListOf
from strata.jobs.targets.records import ConnectedTarget, TargetRequest
from strata.jobs.targets.service import TargetService

_TAG = "jobs"

TargetPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]


@get("/v1/job-targets", tags=[_TAG], **needs("read", "workload"))
async def list_job_targets(ask: Asked) -> ListOf[ConnectedTarget]:
    """Targets that are connected for jobs alone: whose nodes are none of Strata's."""
    return ListOf(items=tuple(await ask.of(TargetService).all(ask.who)))


@get("/v1/job-targets/{name:str}", tags=[_TAG], **needs("read", "workload", 404))
async def show_job_target(ask: Asked, name: TargetPath) -> ConnectedTarget:
    """One of them."""
    return await ask.of(TargetService).one(ask.who, name)


@put("/v1/job-targets/{name:str}", tags=[_TAG], **needs("change", "workload", 404, 409, 502, body=True))
async def connect_job_target(ask: Asked, name: TargetPath, data: JSONBody[TargetRequest]) -> ConnectedTarget:
    """Connect a target, or change how it is reached. It is asked about its jobs at once; if it does not answer,
    nothing is changed."""
    return await ask.of(TargetService).connect(ask.who, name, data)


@delete("/v1/job-targets/{name:str}", tags=[_TAG], **needs("delete", "workload", 404, 409))
async def disconnect_job_target(ask: Asked, name: TargetPath) -> None:
    """Disconnect it. Its jobs go on, but Strata no longer follows them."""
    await ask.of(TargetService).disconnect(ask.who, name)


HANDLERS = [list_job_targets, show_job_target, connect_job_target, disconnect_job_target]
