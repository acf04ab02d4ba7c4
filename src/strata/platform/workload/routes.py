"""The connected workload managers."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from strata.api.named import Named
from strata.core.texts import PLAIN
from strata.platform.workload.service import WorkloadService

_WORKLOADS = Named("/v1/workloads", WorkloadService, "workload", tag="workload")

Select = Annotated[str, QueryParameter(pattern=PLAIN, max_length=100_000, description="Which nodes; all by default.")]
Force = Annotated[bool, QueryParameter(description="Even if nodes stay drained that nobody resumes then.")]


_WORKLOADS.list(WorkloadService.all)
_WORKLOADS.show(WorkloadService.one)
_WORKLOADS.put(WorkloadService.connect, called="connect_workload", statuses=(409, 502))
_WORKLOADS.routes.delete(
    "disconnect_workload", "/v1/workloads/{name:str}", WorkloadService.disconnect, 404, 409, 502, force=Force
)
_WORKLOADS.routes.get(
    "list_workload_nodes", "/v1/workloads/{name:str}/nodes", WorkloadService.nodes, 404, 502, select=Select
)
