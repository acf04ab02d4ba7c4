"""Credentials: tokens and client certificates; who one is."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import SerialPath, Services, ServicesOf, TokenPath, Who
from strata.control import service_views as s
from strata.control.auth import CertificateRecord
from strata.control.ca import Authority
from strata.control.principal import RIGHTS
from strata.control.texts import Out
from strata.core.errors import Unavailable

_TAG = "credentials"


class Tokens(Out, frozen=True, kw_only=True):
    """All tokens, oldest first, without secrets."""

    items: tuple[s.TokenView, ...]


class Certificates(Out, frozen=True, kw_only=True):
    """All client certificates that have not expired."""

    items: tuple[s.CertificateView, ...]


@get("/v1/auth/whoami", tags=[_TAG], **needs("read", "self"))
async def whoami(who: Who) -> s.WhoView:
    """Who you are, and what you may do."""
    rights = sorted(str(right) for right in RIGHTS[who.role] if who.may(right))
    return s.WhoView(name=who.name, role=who.role, scope=who.scope, via=who.via, rights=tuple(rights))


@post("/v1/auth/tokens", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def mint_token(services: ServicesOf, who: Who, data: JSONBody[s.TokenRequest]) -> s.NewToken:
    """A new bearer token. Its secret is shown here, once."""
    return await services.authenticator.mint(who, data)


@get("/v1/auth/tokens", tags=[_TAG], **needs("read", "credential"))
async def list_tokens(services: ServicesOf) -> Tokens:
    """All tokens, without their secrets."""
    return Tokens(items=tuple(services.authenticator.tokens()))


@delete("/v1/auth/tokens/{ident:str}", tags=[_TAG], **needs("delete", "credential", 404, 409))
async def revoke_token(services: ServicesOf, who: Who, ident: TokenPath) -> None:
    """Revoke a token, at once."""
    await services.authenticator.revoke(who, ident)


@post("/v1/auth/certificates", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def issue_certificate(services: ServicesOf, who: Who, data: JSONBody[s.CertificateRequest]) -> s.NewCertificate:
    """A new client certificate, for your own key (`csr`) or with a key made here and shown once."""
    authority = _authority(services)
    if data.csr:
        issued = authority.sign_csr(data.csr.encode(), data.name, data.role, data.scope, data.ttl)
    else:
        issued = authority.issue(data.name, data.role, data.scope, data.ttl)
    await services.authenticator.record_certificate(
        who,
        CertificateRecord(
            serial=issued.serial,
            name=data.name,
            role=data.role,
            scope=data.scope,
            expires=issued.expires,
            author=who.name,
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
async def list_certificates(services: ServicesOf) -> Certificates:
    """Client certificates that have not expired."""
    return Certificates(items=tuple(services.authenticator.certificates()))


@delete("/v1/auth/certificates/{serial:str}", tags=[_TAG], **needs("delete", "credential", 409))
async def revoke_certificate(services: ServicesOf, who: Who, serial: SerialPath) -> None:
    """Revoke a client certificate, at once."""
    await services.authenticator.revoke_certificate(who, serial)


def _authority(services: Services) -> Authority:
    if services.authority is None:
        raise Unavailable("this service issues no certificates", hint="start it with TLS")
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
