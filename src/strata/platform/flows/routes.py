"""Flows and their runs, the start and stop of the system, and what is done without waiting."""

from __future__ import annotations

from litestar import Response, get, post, put
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath, OperationPath
from strata.fleet.operations.records import Operation
from strata.platform.flows.records import (
    FlowPlan,
    FlowRun,
    FlowStatus,
    RevokeRequest,
    SystemRun,
    SystemSpec,
    SystemStatus,
)
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows

_TAG = "flows"
_FLOWS = Named("/v1/flows", FlowService, "flow", tag=_TAG, current=FlowService.one)
_FLOWS.list(FlowService.all, "All flows.")
_FLOWS.show(FlowService.one, "One of them.")
_FLOWS.put(
    FlowService.put,
    "Declare a flow, or change it. Runs that are under way go on as they began. `If-Match` is honoured.",
)
_FLOWS.delete(FlowService.delete, "Forget a flow. `If-Match` is honoured.")


@post("/v1/flows/{name:str}/plan", tags=[_TAG], status_code=200, **needs("read", "flow", 404, body=True))
async def plan_flow(ask: Asked, name: NamePath, data: JSONBody[FlowRun]) -> FlowPlan:
    """What a run would do, as things are now. Changes nothing."""
    return await ask.of(FlowService).plan(ask.who, name, data)


@post("/v1/flows/{name:str}/run", tags=[_TAG], status_code=202, **needs("create", "flow", 404, 409, body=True))
async def run_flow(ask: Asked, name: NamePath, data: JSONBody[FlowRun]) -> Response[Operation]:
    """Run a flow, as an operation. With `now` nothing is waited for, and `confirm` must say what `plan` says."""
    return _accepted(await ask.of(FlowService).run(ask.who, name, data))


@get("/v1/flow-runs/{operation:str}", tags=[_TAG], **needs("read", "flow", 404))
async def show_flow_run(ask: Asked, operation: OperationPath) -> FlowStatus:
    """How far a run is, step by step."""
    return await ask.of(FlowService).status(ask.who, operation)


@get("/v1/system", tags=[_TAG], **needs("read", "flow", 404))
async def show_system(ask: Asked) -> SystemSpec:
    """The stages of the system, as they were put."""
    return await ask.of(SystemFlows).show(ask.who)


@put("/v1/system", tags=[_TAG], **needs("change", "flow", 409, body=True))
async def put_system(ask: Asked, data: JSONBody[SystemSpec]) -> SystemSpec:
    """Say which stages the system is made of, and what each needs."""
    return await ask.of(SystemFlows).put(ask.who, data)


@get("/v1/system/status", tags=[_TAG], **needs("read", "flow", 404, 409))
async def system_status(ask: Asked) -> SystemStatus:
    """How each stage is, in the order in which they are started."""
    return await ask.of(SystemFlows).status(ask.who)


@post("/v1/system/start/plan", tags=[_TAG], status_code=200, **needs("read", "flow", 404, 409, body=True))
async def plan_system_start(ask: Asked, data: JSONBody[SystemRun]) -> FlowPlan:
    """What a start would do. Changes nothing."""
    return await ask.of(SystemFlows).plan(ask.who, data, start=True)


@post("/v1/system/stop/plan", tags=[_TAG], status_code=200, **needs("read", "flow", 404, 409, body=True))
async def plan_system_stop(ask: Asked, data: JSONBody[SystemRun]) -> FlowPlan:
    """What a stop would do, and the words that confirm it. Changes nothing."""
    return await ask.of(SystemFlows).plan(ask.who, data, start=False)


@post("/v1/system/start", tags=[_TAG], status_code=202, **needs("create", "flow", 404, 409, body=True))
async def start_system(ask: Asked, data: JSONBody[SystemRun]) -> Response[Operation]:
    """Start the system, stage by stage. What is up already takes no time."""
    return _accepted(await ask.of(SystemFlows).run(ask.who, data, start=True))


@post("/v1/system/stop", tags=[_TAG], status_code=202, **needs("create", "flow", 404, 409, body=True))
async def stop_system(ask: Asked, data: JSONBody[SystemRun]) -> Response[Operation]:
    """Stop the system, the last stage first. `confirm` must say `stop N nodes`."""
    return _accepted(await ask.of(SystemFlows).run(ask.who, data, start=False))


@post("/v1/emergency-revoke", tags=["emergency"], status_code=202, **needs("create", "emergency", 404, 409, body=True))
async def emergency_revoke(ask: Asked, data: JSONBody[RevokeRequest]) -> Response[Operation]:
    """Revoke the selected nodes' certificates, as an operation: they are cut off until they boot anew.
    `confirm` must say `revoke N nodes` with the right number."""
    return _accepted(await ask.of(FlowService).revoke(ask.who, data))


def _accepted(operation: Operation) -> Response[Operation]:
    return Response(operation, headers={"Location": f"/v1/operations/{operation.id}"})
