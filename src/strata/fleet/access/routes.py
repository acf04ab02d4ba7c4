"""Credentials: tokens and client certificates; who one is."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.rights import needs, public
from strata.api.routing import Routes
from strata.api.services import Ask, Asked, SerialPath, TokenPath
from strata.core.errors import NotFound
from strata.core.texts import ListOf
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.oidc.exchange import by_code, by_renewal
from strata.fleet.access.oidc.tokens import OidcTokens
from strata.fleet.access.principal import RIGHTS
from strata.fleet.access.records import (
    Certificate,
    CertificateRequest,
    CodeRequest,
    GivenLogin,
    LoginWay,
    NewCertificate,
    RenewalRequest,
    Token,
    WhoView,
)

_TAG = "credentials"


@get("/v1/auth/whoami", tags=[_TAG], **needs("read", "self"))
async def whoami(ask: Asked) -> WhoView:
    """Who you are, and what you may do."""
    rights = sorted(str(right) for right in RIGHTS[ask.who.role] if ask.who.may(right))
    return WhoView.of(ask.who, rights=tuple(rights))


@get("/v1/auth/oidc", tags=[_TAG], security=[{}], **public(404))
async def login_way(ask: Asked) -> LoginWay:
    """How people log in. Whoever asks has not yet done so."""
    oidc = _provider(ask)
    oidc.hear()
    return LoginWay(issuer=oidc.settings.issuer, client=oidc.settings.audience, authorize=oidc.endpoints.authorize)


@post("/v1/auth/oidc/code", tags=[_TAG], status_code=200, security=[{}], **public(401, 404, 502, 503, body=True))
async def redeem_code(ask: Asked, data: JSONBody[CodeRequest]) -> GivenLogin:
    """The provider's token for the code that it sent your browser back with (authorisation code with PKCE)."""
    return await by_code(_provider(ask), data)


@post("/v1/auth/oidc/renewal", tags=[_TAG], status_code=200, security=[{}], **public(401, 404, 502, 503, body=True))
async def renew_login(ask: Asked, data: JSONBody[RenewalRequest]) -> GivenLogin:
    """Another token for a sign-in that goes on."""
    return await by_renewal(_provider(ask), data)


def _provider(ask: Ask) -> OidcTokens:
    found = ask.of(Authenticator).oidc
    if found is None:
        raise NotFound(
            "no OpenID Connect provider is set here", hint="use a token, or have oidc.issuer set in the configuration"
        )
    return found


@get("/v1/auth/tokens", tags=[_TAG], **needs("read", "credential"))
async def list_tokens(ask: Asked) -> ListOf[Token]:
    """All tokens, without their secrets."""
    return ListOf(items=tuple(ask.of(Authenticator).tokens()))


@post("/v1/auth/certificates", tags=[_TAG], **needs("create", "credential", 409, body=True))
async def issue_certificate(ask: Asked, data: JSONBody[CertificateRequest]) -> NewCertificate:
    """A new client certificate, for your own key (`csr`) or with a key made here and shown once."""
    authority = ask.of(Authority)
    if data.csr:
        issued = authority.sign_csr(data.csr.encode(), data.name, data.role, data.scope, data.ttl)
    else:
        issued = authority.issue(data.name, data.role, data.scope, data.ttl)
    certificate = Certificate.of(issued, data, author=ask.who.name, revoked=False)
    await ask.of(Authenticator).record_certificate(ask.who, certificate)
    return NewCertificate(
        serial=issued.serial,
        certificate=issued.certificate.decode(),
        key=issued.key.decode(),
        ca=authority.pem.decode(),
        expires=issued.expires,
    )


@get("/v1/auth/certificates", tags=[_TAG], **needs("read", "credential"))
async def list_certificates(ask: Asked) -> ListOf[Certificate]:
    """Client certificates that have not expired."""
    return ListOf(items=tuple(ask.of(Authenticator).certificates()))


_ROUTES = Routes(Authenticator, "credential", tag=_TAG)
_ROUTES.post("mint_token", "/v1/auth/tokens", Authenticator.mint, "create", 409, success=201)
_ROUTES.delete("revoke_token", "/v1/auth/tokens/{ident:str}", Authenticator.revoke, 404, 409, ident=TokenPath)
_ROUTES.delete(
    "revoke_certificate",
    "/v1/auth/certificates/{serial:str}",
    Authenticator.revoke_certificate,
    409,
    serial=SerialPath,
)
