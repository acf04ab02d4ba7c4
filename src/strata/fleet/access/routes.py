"""Credentials: tokens and client certificates; who one is."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.params import JSONBody

from strata.api.rights import needs, public
from strata.api.services import Asked, SerialPath, TokenPath
from strata.core.errors import NotFound
from strata.core.texts import Out
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import RIGHTS
from strata.fleet.access.records import (
    Certificate,
    CertificateRequest,
    LoginWay,
    NewCertificate,
    NewToken,
    Token,
    TokenRequest,
    WhoView,
)

_TAG = "credentials"


class Tokens(Out, frozen=True, kw_only=True):
    """All tokens, oldest first, without secrets."""

    items: tuple[Token, ...]


class Certificates(Out, frozen=True, kw_only=True):
    """All client certificates that have not expired."""

    items: tuple[Certificate, ...]


@get("/v1/auth/whoami", tags=[_TAG], **needs("read", "self"))
async def whoami(ask: Asked) -> WhoView:
    """Who you are, and what you may do."""
    rights = sorted(str(right) for right in RIGHTS[ask.who.role] if ask.who.may(right))
    return WhoView(name=ask.who.name, role=ask.who.role, scope=ask.who.scope, via=ask.who.via, rights=tuple(rights))


@get("/v1/auth/oidc", tags=[_TAG], security=[{}], **public(404))
async def login_way(ask: Asked) -> LoginWay:
    """How people log in. Whoever asks has not yet done so."""
    oidc = ask.of(Authenticator).oidc
    if oidc is None:
        raise NotFound(
            "no OpenID Connect provider is set here", hint="use a token, or have oidc.issuer set in the configuration"
        )
    return LoginWay(issuer=oidc.settings.issuer, client=oidc.settings.audience)


@post("/v1/auth/tokens", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def mint_token(ask: Asked, data: JSONBody[TokenRequest]) -> NewToken:
    """A new bearer token. Its secret is shown here, once."""
    return await ask.of(Authenticator).mint(ask.who, data)


@get("/v1/auth/tokens", tags=[_TAG], **needs("read", "credential"))
async def list_tokens(ask: Asked) -> Tokens:
    """All tokens, without their secrets."""
    return Tokens(items=tuple(ask.of(Authenticator).tokens()))


@delete("/v1/auth/tokens/{ident:str}", tags=[_TAG], **needs("delete", "credential", 404, 409))
async def revoke_token(ask: Asked, ident: TokenPath) -> None:
    """Revoke a token, at once."""
    await ask.of(Authenticator).revoke(ask.who, ident)


@post("/v1/auth/certificates", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def issue_certificate(ask: Asked, data: JSONBody[CertificateRequest]) -> NewCertificate:
    """A new client certificate, for your own key (`csr`) or with a key made here and shown once."""
    authority = ask.of(Authority)
    if data.csr:
        issued = authority.sign_csr(data.csr.encode(), data.name, data.role, data.scope, data.ttl)
    else:
        issued = authority.issue(data.name, data.role, data.scope, data.ttl)
    await ask.of(Authenticator).record_certificate(
        ask.who,
        Certificate(
            serial=issued.serial,
            name=data.name,
            role=data.role,
            scope=data.scope,
            expires=issued.expires,
            author=ask.who.name,
        ),
    )
    return NewCertificate(
        serial=issued.serial,
        certificate=issued.certificate.decode(),
        key=issued.key.decode(),
        ca=authority.pem.decode(),
        expires=issued.expires,
    )


@get("/v1/auth/certificates", tags=[_TAG], **needs("read", "credential"))
async def list_certificates(ask: Asked) -> Certificates:
    """Client certificates that have not expired."""
    return Certificates(items=tuple(ask.of(Authenticator).certificates()))


@delete("/v1/auth/certificates/{serial:str}", tags=[_TAG], **needs("delete", "credential", 409))
async def revoke_certificate(ask: Asked, serial: SerialPath) -> None:
    """Revoke a client certificate, at once."""
    await ask.of(Authenticator).revoke_certificate(ask.who, serial)


HANDLERS = [
    whoami,
    login_way,
    mint_token,
    list_tokens,
    revoke_token,
    issue_certificate,
    list_certificates,
    revoke_certificate,
]
