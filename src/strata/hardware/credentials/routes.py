"""Credentials of the nodes' BMCs: who Strata is to them. Secrets go in and never come out."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from strata.api.routing import Routes
from strata.core.texts import PLAIN
from strata.hardware.credentials.records import RotationRequest
from strata.hardware.credentials.service import BmcCredentialService

Pattern = Annotated[
    str,
    QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="An address, a glob of them or `default`."),
]


_ROUTES = Routes(BmcCredentialService, "bmc-credential", tag="hardware credentials")
_ROUTES.get("list_bmc_credentials", "/v1/hardware/credentials", BmcCredentialService.credentials)
_ROUTES.put("put_bmc_credential", "/v1/hardware/credentials", BmcCredentialService.put, "change", 409)
_ROUTES.delete(
    "delete_bmc_credential", "/v1/hardware/credentials", BmcCredentialService.delete, 404, 409, pattern=Pattern
)
_ROUTES.post(
    "rotate_bmc_passwords",
    "/v1/hardware/credentials/rotate",
    BmcCredentialService.rotate,
    "change",
    404,
    409,
    success=202,
    data=RotationRequest,
)
_ROUTES.post(
    "accept_bmc_certificate",
    "/v1/hardware/credentials/accept-certificate",
    BmcCredentialService.accept_certificate,
    "change",
    404,
    409,
    success=204,
)
