"""When and where jobs ran, and what they used."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import PathParameter, QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, Limit, Time
from strata.core.texts import PLAIN, ListOf
from strata.power.accounting.records import JOB_ID, JobBrief
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


_ROUTES = Routes(PowerJobs, "power", tag=_TAG)
_ROUTES.get("job_power", "/v1/power/jobs/{name:str}", PowerJobs.job, 404, 410, name=JobPath, apid=Apid)
_ROUTES.post("tell_jobs", "/v1/power/jobs", PowerJobs.tell, "change", 404)
