"""Secrets, without their values: no route takes one in clear, and none gives one out."""

from __future__ import annotations

from litestar import delete, get, post, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.platform.secrets.records import (
    IdentityView,
    NewIdentity,
    NewValue,
    SecretSpec,
    SecretStatus,
    SecretView,
)
from strata.platform.secrets.service import SecretService

_TAG = "secrets"


@get("/v1/secrets", tags=[_TAG], **needs("read", "secret"))
async def list_secrets(ask: Asked) -> ListOf[SecretView]:
    """All secrets: whom they are for, and which version is the newest."""
    return ListOf(items=tuple(await ask.of(SecretService).all(ask.who)))


@get("/v1/secrets/{name:str}", tags=[_TAG], **needs("read", "secret", 404))
async def show_secret(ask: Asked, name: NamePath) -> SecretView:
    """One of them."""
    return await ask.of(SecretService).one(ask.who, name)


@get("/v1/secrets/{name:str}/status", tags=[_TAG], **needs("read", "secret", 404))
async def secret_status(ask: Asked, name: NamePath) -> SecretStatus:
    """Which nodes hold the newest value, as they say themselves."""
    return await ask.of(SecretService).status(ask.who, name)


@put("/v1/secrets/{name:str}", tags=[_TAG], **needs("change", "secret", 404, 409, body=True))
async def put_secret(ask: Asked, name: NamePath, data: JSONBody[SecretSpec]) -> SecretView:
    """Create or replace a secret. Its value is encrypted with age for the service's recipient, or is in a Vault."""
    return await ask.of(SecretService).put(ask.who, name, data)


@post("/v1/secrets/{name:str}/rotate", tags=[_TAG], status_code=200, **needs("change", "secret", 404, 409, body=True))
async def rotate_secret(ask: Asked, name: NamePath, data: JSONBody[NewValue]) -> SecretView:
    """Give a secret another value, encrypted with age for the service's recipient."""
    return await ask.of(SecretService).rotate(ask.who, name, data)


@delete("/v1/secrets/{name:str}", tags=[_TAG], **needs("delete", "secret", 404, 409))
async def delete_secret(ask: Asked, name: NamePath) -> None:
    """Remove a secret; nodes that are up remove it, too."""
    await ask.of(SecretService).delete(ask.who, name)


@get("/v1/secret-identity", tags=[_TAG], **needs("read", "secret", 404))
async def secret_recipient(ask: Asked) -> IdentityView:
    """The age recipient for which secrets are encrypted."""
    return await ask.of(SecretService).recipient(ask.who)


@post("/v1/secret-identity", tags=[_TAG], **needs("create", "secret", 409, body=True))
async def init_secrets(ask: Asked, data: JSONBody[NewIdentity]) -> IdentityView:
    """Make the service's age identity. Its private half never leaves the service."""
    return await ask.of(SecretService).init(ask.who, another=data.new)


HANDLERS = [
    list_secrets,
    show_secret,
    secret_status,
    put_secret,
    rotate_secret,
    delete_secret,
    secret_recipient,
    init_secrets,
]
