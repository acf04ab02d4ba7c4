"""The connected workload managers."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get
from litestar.params import QueryParameter

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import PLAIN, ListOf
from strata.platform.workload.records import WorkloadNode
from strata.platform.workload.service import WorkloadService

_TAG = "workload"
_WORKLOADS = Named("/v1/workloads", WorkloadService, "workload", tag=_TAG)
_WORKLOADS.list(WorkloadService.all, "All connected workload managers, and whether they answer.")
_WORKLOADS.show(WorkloadService.one, "One of them.")
_WORKLOADS.put(
    WorkloadService.connect,
    "Connect a workload manager, or change how it is reached. It is asked about its nodes at once; if it does not "
    "answer, nothing is changed.",
    called="connect_workload",
    statuses=(409, 502),
)


Select = Annotated[str, QueryParameter(pattern=PLAIN, max_length=100_000, description="Which nodes; all by default.")]
Force = Annotated[bool, QueryParameter(description="Even if nodes stay drained that nobody resumes then.")]


@delete("/v1/workloads/{name:str}", tags=[_TAG], **needs("delete", "workload", 404, 409, 502))
async def disconnect_workload(ask: Asked, name: NamePath, force: Force = False) -> None:
    """Disconnect it. Nodes that Strata drained there would stay so: while there are any, this is refused unless
    forced."""
    await ask.of(WorkloadService).disconnect(ask.who, name, force=force)


@get("/v1/workloads/{name:str}/nodes", tags=[_TAG], **needs("read", "workload", 404, 502))
async def list_workload_nodes(ask: Asked, name: NamePath, select: Select = "") -> ListOf[WorkloadNode]:
    """Nodes as it sees them: their state in its own words, the jobs on them, who drained them and why."""
    return ListOf(items=tuple(await ask.of(WorkloadService).nodes(ask.who, name, select)))
