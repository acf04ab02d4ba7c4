"""Credentials: tokens and client certificates; who one is."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, SerialPath, Services, TokenPath
from strata.control import service_views as s
from strata.control.auth import CertificateRecord
from strata.control.ca import Authority
from strata.control.principal import RIGHTS
from strata.control.texts import Out
from strata.core.errors import Refused

_TAG = "credentials"


class Tokens(Out, frozen=True, kw_only=True):
    """All tokens, oldest first, without secrets."""

    items: tuple[s.TokenView, ...]


class Certificates(Out, frozen=True, kw_only=True):
    """All client certificates that have not expired."""

    items: tuple[s.CertificateView, ...]


@get("/v1/auth/whoami", tags=[_TAG], **needs("read", "self"))
async def whoami(ask: Asked) -> s.WhoView:
    """Who you are, and what you may do."""
    rights = sorted(str(right) for right in RIGHTS[ask.who.role] if ask.who.may(right))
    return s.WhoView(name=ask.who.name, role=ask.who.role, scope=ask.who.scope, via=ask.who.via, rights=tuple(rights))


@post("/v1/auth/tokens", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def mint_token(ask: Asked, data: JSONBody[s.TokenRequest]) -> s.NewToken:
    """A new bearer token. Its secret is shown here, once."""
    return await ask.services.authenticator.mint(ask.who, data)


@get("/v1/auth/tokens", tags=[_TAG], **needs("read", "credential"))
async def list_tokens(ask: Asked) -> Tokens:
    """All tokens, without their secrets."""
    return Tokens(items=tuple(ask.services.authenticator.tokens()))


@delete("/v1/auth/tokens/{ident:str}", tags=[_TAG], **needs("delete", "credential", 404, 409))
async def revoke_token(ask: Asked, ident: TokenPath) -> None:
    """Revoke a token, at once."""
    await ask.services.authenticator.revoke(ask.who, ident)


@post("/v1/auth/certificates", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def issue_certificate(ask: Asked, data: JSONBody[s.CertificateRequest]) -> s.NewCertificate:
    """A new client certificate, for your own key (`csr`) or with a key made here and shown once."""
    authority = _authority(ask.services)
    if data.csr:
        issued = authority.sign_csr(data.csr.encode(), data.name, data.role, data.scope, data.ttl)
    else:
        issued = authority.issue(data.name, data.role, data.scope, data.ttl)
    await ask.services.authenticator.record_certificate(
        ask.who,
        CertificateRecord(
            serial=issued.serial,
            name=data.name,
            role=data.role,
            scope=data.scope,
            expires=issued.expires,
            author=ask.who.name,
        ),
    )
    return s.NewCertificate(
        serial=issued.serial,
        certificate=issued.certificate.decode(),
        key=issued.key.decode(),
        ca=authority.pem.decode(),
        expires=issued.expires,
    )


@get("/v1/auth/certificates", tags=[_TAG], **needs("read", "credential"))
async def list_certificates(ask: Asked) -> Certificates:
    """Client certificates that have not expired."""
    return Certificates(items=tuple(ask.services.authenticator.certificates()))


@delete("/v1/auth/certificates/{serial:str}", tags=[_TAG], **needs("delete", "credential", 409))
async def revoke_certificate(ask: Asked, serial: SerialPath) -> None:
    """Revoke a client certificate, at once."""
    await ask.services.authenticator.revoke_certificate(ask.who, serial)


def _authority(services: Services) -> Authority:
    if services.authority is None:
        raise Refused("this service issues no certificates", by="configuration", hint="start it with TLS")
    return services.authority


HANDLERS = [
    whoami,
    mint_token,
    list_tokens,
    revoke_token,
    issue_certificate,
    list_certificates,
    revoke_certificate,
]
