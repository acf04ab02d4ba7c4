"""Targets of jobs beside the site's workload managers: a Kubernetes, another site's cluster, a PBS, LSF or HTCondor."""

from __future__ import annotations

from strata.core.room import Room

_HERE = "strata.jobs.targets"

ROOM = Room(services=(f"{_HERE}.service:TargetService",), routes=(f"{_HERE}.routes",))
