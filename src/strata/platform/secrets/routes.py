"""Secrets, without their values: no route takes one in clear, and none gives one out."""

from __future__ import annotations

from strata.api.named import Named
from strata.platform.secrets.records import NewIdentity
from strata.platform.secrets.service import SecretService

_SECRETS = Named("/v1/secrets", SecretService, "secret", tag="secrets")
_SECRETS.list(SecretService.all)
_SECRETS.show(SecretService.one)
_SECRETS.put(SecretService.put)
_SECRETS.delete(SecretService.delete)
_SECRETS.routes.get("secret_status", "/v1/secrets/{name:str}/status", SecretService.status, 404)
_SECRETS.routes.post("rotate_secret", "/v1/secrets/{name:str}/rotate", SecretService.rotate, "change", 404, 409)
_SECRETS.routes.get("secret_recipient", "/v1/secret-identity", SecretService.recipient, 404)
_SECRETS.routes.post(
    "init_secrets", "/v1/secret-identity", SecretService.init, "create", 409, success=201, data=NewIdentity
)
