"""Credentials of the nodes' BMCs: who Strata is to them. Secrets go in and never come out."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, post
from litestar.params import JSONBody, QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.core.texts import PLAIN
from strata.fleet.operations.records import Operation
from strata.hardware.credentials.records import RotationRequest
from strata.hardware.credentials.service import BmcCredentialService

_TAG = "hardware credentials"

Pattern = Annotated[
    str,
    QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="An address, a glob of them or `default`."),
]


@post(
    "/v1/hardware/credentials/rotate",
    tags=[_TAG],
    status_code=202,
    **needs("change", "bmc-credential", 404, 409, body=True),
)
async def rotate_bmc_passwords(ask: Asked, data: JSONBody[RotationRequest]) -> Response[Operation]:
    """Give every selected node's BMC a new random password of its own: an operation."""
    job = await ask.of(BmcCredentialService).rotate(ask.who, data.select)
    return Response(job, status_code=202, headers={"Location": f"/v1/operations/{job.id}"})


_ROUTES = Routes(BmcCredentialService, "bmc-credential", tag=_TAG)

HANDLERS = [
    _ROUTES.get("list_bmc_credentials", "/v1/hardware/credentials", BmcCredentialService.credentials),
    _ROUTES.put("put_bmc_credential", "/v1/hardware/credentials", BmcCredentialService.put, "change", 409),
    _ROUTES.delete(
        "delete_bmc_credential", "/v1/hardware/credentials", BmcCredentialService.delete, 404, 409, pattern=Pattern
    ),
    rotate_bmc_passwords,
    _ROUTES.post(
        "accept_bmc_certificate",
        "/v1/hardware/credentials/accept-certificate",
        BmcCredentialService.accept_certificate,
        "change",
        404,
        409,
        success=204,
    ),
]
