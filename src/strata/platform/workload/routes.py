"""The connected workload managers."""

from __future__ import annotations

from typing import Annotated

from litestar import delete
from litestar.params import QueryParameter

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import PLAIN
from strata.platform.workload.service import WorkloadService

_TAG = "workload"
_WORKLOADS = Named("/v1/workloads", WorkloadService, "workload", tag=_TAG)

Select = Annotated[str, QueryParameter(pattern=PLAIN, max_length=100_000, description="Which nodes; all by default.")]
Force = Annotated[bool, QueryParameter(description="Although nodes are drained that nobody would resume then.")]


@delete("/v1/workloads/{name:str}", tags=[_TAG], **needs("delete", "workload", 404, 409, 502))
async def disconnect_workload(ask: Asked, name: NamePath, force: Force = False) -> None:
    """Disconnect it. Nodes that Strata drained there would stay so: while there are any, this is refused unless
    forced."""
    await ask.of(WorkloadService).disconnect(ask.who, name, force=force)


HANDLERS = [
    _WORKLOADS.list(WorkloadService.all),
    _WORKLOADS.show(WorkloadService.one),
    _WORKLOADS.put(WorkloadService.connect, called="connect_workload", statuses=(409, 502)),
    disconnect_workload,
    _WORKLOADS.routes.get(
        "list_workload_nodes", "/v1/workloads/{name:str}/nodes", WorkloadService.nodes, 404, 502, select=Select
    ),
]
