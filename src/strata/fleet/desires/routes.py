"""Desires on many nodes, what they would lead to, and the documents that hold them."""

from __future__ import annotations

from litestar import Response, post
from litestar.params import JSONBody

from strata.api.http import AnyRequest, wants_async
from strata.api.named import Named
from strata.api.rights import answers, needs
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.core.errors import BadRequest
from strata.fleet.desires.records import DesireChange, DesireResult
from strata.fleet.desires.service import DesireService
from strata.fleet.operations.records import Operation
from strata.fleet.plans.service import PlanService

_TAG = "desires"


@post(
    "/v1/desires",
    tags=[_TAG],
    status_code=200,
    **needs("change", "desire", 404, 409, body=True, also={202: answers(Operation, "Accepted as an operation.")}),
)
async def set_desires(
    request: AnyRequest, ask: Asked, data: JSONBody[DesireChange]
) -> Response[DesireResult | Operation]:
    """Set and unset desires on the selected nodes. An operation for more than 1000, or with `Prefer: respond-async`."""
    if not data.set and not data.unset:
        raise BadRequest("nothing to do", where="set, unset", hint="give at least one variable")
    if both := sorted(set(data.set) & set(data.unset)):
        raise BadRequest("both set and unset", where=both[0])
    outcome = await ask.of(DesireService).set_desires(ask.who, data, wants_async(request))
    if isinstance(outcome, Operation):
        return Response(outcome, status_code=202, headers={"Location": f"/v1/operations/{outcome.id}"})
    return Response(outcome)


_ROUTES = Routes(PlanService, "desire", tag=_TAG)
_DOCUMENTS = Named("/v1/documents", DesireService, "document", tag="documents", current=DesireService.document)
_ROUTES.post("plan_many", "/v1/plan", PlanService.plan_many, "read", 404)
_DOCUMENTS.list(DesireService.documents)
_DOCUMENTS.show(DesireService.document)
_DOCUMENTS.delete(DesireService.delete_document)
_DOCUMENTS.put(DesireService.put_document)
_DOCUMENTS.routes.post("apply_documents", "/v1/apply", DesireService.apply, "change", 404, 409)
