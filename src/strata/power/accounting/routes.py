"""When and where jobs ran, and what they used."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from strata.api.rights import needs
from strata.api.services import Asked, Limit, Time
from strata.core.texts import PLAIN, ListOf
from strata.power.accounting.records import JOB_ID, JobBrief, JobPower, JobsTaken, JobsTold
from strata.power.accounting.service import PowerJobs

_TAG = "power"

JobPath = Annotated[str, PathParameter(pattern=JOB_ID, max_length=64)]
Apid = Annotated[
    str,
    QueryParameter(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63})?$(?!\n)",
        max_length=64,
        description="An application of the job. Default: the job.",
    ),
]
User = Annotated[str, QueryParameter(pattern=PLAIN, max_length=64, description="Only jobs of this user.")]
Running = Annotated[bool, QueryParameter(description="Only those that have not ended.")]


@get("/v1/power/jobs", tags=[_TAG], **needs("read", "power"))
async def list_job_power(
    ask: Asked, user: User = "", since: Time = None, running: Running = False, limit: Limit = 100
) -> ListOf[JobBrief]:
    """Jobs that ran since then (by default: a day ago), the newest first."""
    return await ask.of(PowerJobs).jobs(ask.who, user, since, limit, running=running)


@get("/v1/power/jobs/{name:str}", tags=[_TAG], **needs("read", "power", 404, 410))
async def job_power(ask: Asked, name: JobPath, apid: Apid = "") -> JobPower:
    """What a job used: energy, average and highest power, how that is spread over its nodes, and against earlier runs
    of the same user and name."""
    return await ask.of(PowerJobs).job(ask.who, name, apid)


@post("/v1/power/jobs", tags=[_TAG], status_code=200, **needs("change", "power", 404, body=True))
async def tell_jobs(ask: Asked, data: JSONBody[JobsTold]) -> JobsTaken:
    """Tell when and where jobs run, as it happens (``events``) or from accounting (``runs``). What is told twice counts
    once."""
    return await ask.of(PowerJobs).tell(ask.who, data)
