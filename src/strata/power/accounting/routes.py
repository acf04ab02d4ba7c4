"""When and where jobs ran, and what they used."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from strata.api.routing import Routes
from strata.api.services import Limit, Time
from strata.core.texts import PLAIN
from strata.power.accounting.records import JOB_ID
from strata.power.accounting.service import PowerJobs

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


_ROUTES = Routes(PowerJobs, "power", tag="power")
_ROUTES.get("list_job_power", "/v1/power/jobs", PowerJobs.jobs, user=User, since=Time, running=Running, limit=Limit)
_ROUTES.get("job_power", "/v1/power/jobs/{name:str}", PowerJobs.job, 404, 410, name=JobPath, apid=Apid)
_ROUTES.post("tell_jobs", "/v1/power/jobs", PowerJobs.tell, "change", 404)
