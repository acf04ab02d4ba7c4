"""Secrets, without their values: no route takes one in clear, and none gives one out."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.platform.secrets.records import IdentityView, NewIdentity, NewValue, SecretStatus, SecretView
from strata.platform.secrets.service import SecretService

_TAG = "secrets"
_SECRETS = Named("/v1/secrets", SecretService, "secret", tag=_TAG)
_SECRETS.list(SecretService.all, "All secrets: whom they are for, and which version is the newest.")
_SECRETS.show(SecretService.one, "One of them.")
_SECRETS.put(
    SecretService.put,
    "Create or replace a secret. Its value is encrypted with age for the service's recipient, or is in a Vault.",
)
_SECRETS.delete(SecretService.delete, "Remove a secret; nodes that are up remove it, too.")


@get("/v1/secrets/{name:str}/status", tags=[_TAG], **needs("read", "secret", 404))
async def secret_status(ask: Asked, name: NamePath) -> SecretStatus:
    """Which nodes hold the newest value, as they say themselves."""
    return await ask.of(SecretService).status(ask.who, name)


@post("/v1/secrets/{name:str}/rotate", tags=[_TAG], status_code=200, **needs("change", "secret", 404, 409, body=True))
async def rotate_secret(ask: Asked, name: NamePath, data: JSONBody[NewValue]) -> SecretView:
    """Give a secret another value, encrypted with age for the service's recipient."""
    return await ask.of(SecretService).rotate(ask.who, name, data)


@get("/v1/secret-identity", tags=[_TAG], **needs("read", "secret", 404))
async def secret_recipient(ask: Asked) -> IdentityView:
    """The age recipient for which secrets are encrypted."""
    return await ask.of(SecretService).recipient(ask.who)


@post("/v1/secret-identity", tags=[_TAG], **needs("create", "secret", 409, body=True))
async def init_secrets(ask: Asked, data: JSONBody[NewIdentity]) -> IdentityView:
    """Make the service's age identity. Its private half never leaves the service."""
    return await ask.of(SecretService).init(ask.who, another=data.new)
