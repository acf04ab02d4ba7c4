"""What nodes, cabinets and the machine draw. (Switching nodes: ``hardware.bmc`` and ``fleet.desires``.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from litestar import get
from litestar.openapi.spec import OpenAPIResponse, Operation
from litestar.params import QueryParameter
from litestar.response import Stream

from strata.api.http import AnyRequest
from strata.api.rights import answers, needs
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, Select, Time
from strata.power.telemetry.service import PowerService

_TAG = "power"
_PARQUET = "application/vnd.apache.parquet"
_FILE = answers(bytes, "The file, in pieces.", "text/csv")

Step = Annotated[
    float, QueryParameter(ge=0, le=1e7, description="Seconds that one value stands for. Default: about 240 values.")
]
Metric = Annotated[
    Literal["power", "energy", "accel-power", "temperature", "cap"], QueryParameter(description="What was measured.")
]
Sort = Annotated[
    str,
    QueryParameter(
        pattern=r"^(-?[a-z_]{1,20})?$(?!\n)",
        max_length=21,
        description="`-power`: those that draw the most. Default: by name.",
    ),
]
Format = Annotated[Literal["", "csv", "parquet"], QueryParameter(description="Default: as `Accept` says, else csv.")]
Each = Annotated[bool, QueryParameter(description="Also every node's own values (at most 1000 nodes).")]


@dataclass
class _Samples(Operation):
    """Documents that the file comes in either of two formats."""

    def __post_init__(self) -> None:
        found = (self.responses or {}).get("200")
        if isinstance(found, OpenAPIResponse) and found.content:
            found.content[_PARQUET] = found.content["text/csv"]


@get("/v1/power/samples", tags=[_TAG], operation_class=_Samples, **needs("read", "power", 404, 410, also={200: _FILE}))
async def power_samples(
    ask: Asked,
    request: AnyRequest,
    select: Select = "*",
    metric: Metric = "power",
    start: Time = None,
    end: Time = None,
    step: Step = 0.0,
    format: Format = "",
) -> Stream:
    """Every node's samples as a file, CSV or (with `format=parquet`, or where that is accepted) Parquet: time, node and
    value; by default its power in the last hour, as it was measured. What is not known has no line."""
    kind = format or ("parquet" if _PARQUET in request.headers.get("accept", "") else "csv")
    pieces = ask.of(PowerService).samples(ask.who, select, kind, metric, start, end, step)
    return Stream(pieces, media_type=_PARQUET if kind == "parquet" else "text/csv")


_ROUTES = Routes(PowerService, "power", tag=_TAG)
_ROUTES.get(
    "list_node_power",
    "/v1/power/nodes",
    PowerService.nodes,
    404,
    select=Select,
    sort=Sort,
    limit=Limit,
    cursor=Cursor,
)
_ROUTES.get("machine_power", "/v1/power/machine", PowerService.machine, metric=Metric)
_ROUTES.get(
    "power_history",
    "/v1/power/history",
    PowerService.history,
    404,
    410,
    select=Select,
    metric=Metric,
    start=Time,
    end=Time,
    step=Step,
    each=Each,
)
_ROUTES.get("system_power", "/v1/power/system", PowerService.system, 410, start=Time, end=Time, step=Step)
_ROUTES.get("cabinet_power", "/v1/power/cabinets", PowerService.cabinets, 410, start=Time, end=Time, step=Step)
