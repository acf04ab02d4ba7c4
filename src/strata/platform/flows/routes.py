"""Flows and their runs, the start and stop of the system, and what is done without waiting."""

from __future__ import annotations

from litestar import Response, post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked, OperationPath
from strata.fleet.operations.records import Operation
from strata.platform.flows.records import FlowPlan, SystemRun
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows

_TAG = "flows"
_FLOWS = Named("/v1/flows", FlowService, "flow", tag=_TAG, current=FlowService.one)


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


def _accepted(operation: Operation) -> Response[Operation]:
    return Response(operation, headers={"Location": f"/v1/operations/{operation.id}"})


_ROUTES = Routes(SystemFlows, "flow", tag=_TAG)
_EMERGENCY = Routes(FlowService, "emergency", tag="emergency")
_FLOWS.list(FlowService.all)
_FLOWS.show(FlowService.one, alone=True)
_FLOWS.put(FlowService.put)
_FLOWS.delete(FlowService.delete)
_FLOWS.routes.post("plan_flow", "/v1/flows/{name:str}/plan", FlowService.plan, "read", 404)
_FLOWS.routes.post("run_flow", "/v1/flows/{name:str}/run", FlowService.run, "create", 404, 409, success=202)
_FLOWS.routes.get("show_flow_run", "/v1/flow-runs/{operation:str}", FlowService.status, 404, operation=OperationPath)
_ROUTES.get("show_system", "/v1/system", SystemFlows.show, 404)
_ROUTES.put("put_system", "/v1/system", SystemFlows.put, "change", 409)
_ROUTES.get("system_status", "/v1/system/status", SystemFlows.status, 404, 409)
_EMERGENCY.post("emergency_revoke", "/v1/emergency-revoke", FlowService.revoke, "create", 404, 409, success=202)
