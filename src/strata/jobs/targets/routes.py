"""Targets that are connected for jobs alone."""

from __future__ import annotations

from strata.api.named import Named
from strata.jobs.targets.service import TargetService

_TARGETS = Named("/v1/job-targets", TargetService, "job_target", tag="jobs", kind="workload")
_TARGETS.list(TargetService.all)
_TARGETS.show(TargetService.one)
_TARGETS.put(TargetService.connect, called="connect_job_target", statuses=(404, 409, 502))
_TARGETS.delete(TargetService.disconnect, called="disconnect_job_target")
