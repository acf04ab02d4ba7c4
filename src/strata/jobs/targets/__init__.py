"""Targets of jobs beside the site's workload managers: a Kubernetes, another site's cluster, a PBS, LSF or HTCondor."""

from strata.core.room import Room

ROOM = Room(services=(".service:TargetService",), routes=(".routes",))
