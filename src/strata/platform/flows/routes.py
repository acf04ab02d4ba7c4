"""Flows and their runs, the start and stop of the system, and what is done without waiting."""

from __future__ import annotations

from strata.api.named import Named
from strata.api.routing import Routes
from strata.api.services import OperationPath
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows

_TAG = "flows"
_FLOWS = Named("/v1/flows", FlowService, "flow", tag=_TAG, current=FlowService.one)
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
_ROUTES.post("plan_system_start", "/v1/system/start/plan", SystemFlows.plan_start, "read", 404, 409)
_ROUTES.post("plan_system_stop", "/v1/system/stop/plan", SystemFlows.plan_stop, "read", 404, 409)
_ROUTES.post("start_system", "/v1/system/start", SystemFlows.start_stages, "create", 404, 409, success=202)
_ROUTES.post("stop_system", "/v1/system/stop", SystemFlows.stop_stages, "create", 404, 409, success=202)
