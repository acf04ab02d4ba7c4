"""Targets that are connected for jobs alone."""

from __future__ import annotations

from strata.api.named import Named
from strata.jobs.targets.service import TargetService

_TARGETS = Named("/v1/job-targets", TargetService, "job_target", tag="jobs", kind="workload")
_TARGETS.list(TargetService.all, "Targets that are connected for jobs alone: whose nodes are none of Strata's.")
_TARGETS.show(TargetService.one, "One of them.")
_TARGETS.put(
    TargetService.connect,
    "Connect a target, or change how it is reached. It is asked about its jobs at once; if it does not answer, "
    "nothing is changed.",
    called="connect_job_target",
    statuses=(404, 409, 502),
)
_TARGETS.delete(
    TargetService.disconnect,
    "Disconnect it. Its jobs go on, but Strata no longer follows them.",
    called="disconnect_job_target",
)
