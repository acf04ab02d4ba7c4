"""Credentials of the nodes' BMCs: who Strata is to them. Secrets go in and never come out."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, post, put
from litestar.params import JSONBody, QueryParameter

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import PLAIN, ListOf
from strata.fleet.operations.records import Operation
from strata.hardware.credentials.records import (
    BmcCredentialSpec,
    BmcCredentialView,
    CertificateAcceptance,
    RotationRequest,
)
from strata.hardware.credentials.service import BmcCredentialService

_TAG = "hardware credentials"

Pattern = Annotated[
    str,
    QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="An address, a glob of them or `default`."),
]


@get("/v1/hardware/credentials", tags=[_TAG], **needs("read", "bmc-credential"))
async def list_bmc_credentials(ask: Asked) -> ListOf[BmcCredentialView]:
    """All credentials of BMCs, without their secrets."""
    return ListOf(items=tuple(await ask.of(BmcCredentialService).credentials(ask.who)))


@put("/v1/hardware/credentials", tags=[_TAG], **needs("change", "bmc-credential", 409, body=True))
async def put_bmc_credential(ask: Asked, data: JSONBody[BmcCredentialSpec]) -> BmcCredentialView:
    """Create or replace the credential of a pattern of addresses. The most specific pattern that fits counts."""
    return await ask.of(BmcCredentialService).put(ask.who, data)


@delete("/v1/hardware/credentials", tags=[_TAG], **needs("delete", "bmc-credential", 404, 409))
async def delete_bmc_credential(ask: Asked, pattern: Pattern) -> None:
    """Forget the credential of a pattern."""
    await ask.of(BmcCredentialService).delete(ask.who, pattern)


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


@post(
    "/v1/hardware/credentials/accept-certificate",
    tags=[_TAG],
    status_code=204,
    **needs("change", "bmc-credential", 404, 409, body=True),
)
async def accept_bmc_certificate(ask: Asked, data: JSONBody[CertificateAcceptance]) -> None:
    """Accept another certificate from a BMC than the one that it showed first."""
    await ask.of(BmcCredentialService).accept_certificate(ask.who, data)
