"""Secrets, without their values: no route takes one in clear, and none gives one out."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked
from strata.platform.secrets.records import IdentityView, NewIdentity
from strata.platform.secrets.service import SecretService

_TAG = "secrets"
_SECRETS = Named("/v1/secrets", SecretService, "secret", tag=_TAG)


@post("/v1/secret-identity", tags=[_TAG], **needs("create", "secret", 409, body=True))
async def init_secrets(ask: Asked, data: JSONBody[NewIdentity]) -> IdentityView:
    """Make the service's age identity. Its private half never leaves the service."""
    return await ask.of(SecretService).init(ask.who, another=data.new)


HANDLERS = [
    _SECRETS.list(SecretService.all),
    _SECRETS.show(SecretService.one),
    _SECRETS.put(SecretService.put),
    _SECRETS.delete(SecretService.delete),
    _SECRETS.routes.get("secret_status", "/v1/secrets/{name:str}/status", SecretService.status, 404),
    _SECRETS.routes.post("rotate_secret", "/v1/secrets/{name:str}/rotate", SecretService.rotate, "change", 404, 409),
    _SECRETS.routes.get("secret_recipient", "/v1/secret-identity", SecretService.recipient, 404),
    init_secrets,
]
